"""LeRobot's own Diffusion Policy with its own processors, sampled by diffusers (LeRobot 0.4 and later)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.errors import UnavailableReferenceError

Array = npt.NDArray[Any]

_HOW = (
    "install it into this environment with: pip install lerobot[diffusion] "
    "(or prepare a separate environment: scripts/make_reference_env.sh DIR)"
)
_IMAGES = "observation.images"


class LeRobotDiffusion:
    """Diffusion Policy as LeRobot loads it from the checkpoint's folder, every weight required, computing in
    ``dtype``.

    Times are embedded in float32 and a sampler's tables are float32 whatever the weights are, as in training.
    """

    def __init__(self, checkpoint: Checkpoint, dtype: type[np.floating[Any]]) -> None:
        try:
            import torch
            from diffusers.schedulers import scheduling_ddpm
            from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy
            from lerobot.policies.factory import make_pre_post_processors
        except ImportError as error:
            raise UnavailableReferenceError(f"LeRobot cannot be imported ({error}); {_HOW}") from None
        self._torch = torch
        self._sampler_module = scheduling_ddpm
        self._features = {name: feature.name for name, feature in checkpoint.cameras.items()}
        folder = str(checkpoint.folder)
        self._dtype = torch.float64 if dtype is np.float64 else torch.float32
        # LeRobot prints while it loads; standard output is for results.
        with contextlib.redirect_stdout(sys.stderr):
            policy = DiffusionPolicy.from_pretrained(folder, strict=True).to(self._dtype)
        self._before, self._after = make_pre_post_processors(
            policy.config,
            pretrained_path=folder,
            preprocessor_overrides={"device_processor": {"device": "cpu"}},
        )
        self._model = policy.diffusion
        embedding = self._model.unet.diffusion_step_encoder[0]
        embedding.register_forward_hook(lambda module, inputs, output: output.to(self._dtype))

    def predict(self, case: Case) -> Array:
        """Actions ``[chunk, A]`` in robot units."""
        batch = self._before(self._batch(case))
        if self._features:
            batch[_IMAGES] = self._torch.stack([batch[key] for key in self._features.values()], dim=2)
        first, *following = self._noise(case)
        self._model.num_inference_steps = case.num_steps
        # LeRobot lets nobody hand in the noise of the steps.
        remaining = iter(following)
        drawn = patch.object(self._sampler_module, "randn_tensor", lambda *_, **__: next(remaining))
        with self._torch.no_grad(), drawn:
            actions = self._after(self._model.generate_actions(batch, noise=first))
        result: Array = actions[0].numpy()
        return result

    def _batch(self, case: Case) -> dict[str, Any]:
        """The observations of all moments, [1, n, ...]."""
        observation = case.observation
        batch = {self._features[name]: self._frames(x) for name, x in observation.images.items()}
        for key, values in (
            ("observation.state", observation.state),
            ("observation.environment_state", observation.env_state),
        ):
            if values is not None:
                rows = self._torch.from_numpy(np.atleast_2d(values)).to(self._dtype)
                batch[key] = rows[None]
        return batch

    def _frames(self, images: npt.NDArray[np.uint8]) -> Any:
        """Channels first, 0 to 1, as LeRobot's datasets and robots give them."""
        pixels = self._torch.from_numpy(images.reshape(-1, *images.shape[-3:])).permute(0, 3, 1, 2)
        return pixels.contiguous().to(self._dtype)[None] / 255

    def _noise(self, case: Case) -> Iterator[Any]:
        """The first sample, then the noise of each step where steps take some, each [1, rows, width]."""
        assert case.noise is not None
        samples = case.noise.reshape(-1, *case.noise.shape[-2:])
        return (self._torch.from_numpy(sample).to(self._dtype)[None] for sample in samples)


def reference(checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> LeRobotDiffusion:
    """See :mod:`vla_simd_ros.fidelity.references`."""
    return LeRobotDiffusion(checkpoint, dtype)
