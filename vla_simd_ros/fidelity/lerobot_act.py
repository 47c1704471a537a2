"""LeRobot's own ACT with its own processors (LeRobot 0.4 and later)."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.errors import UnavailableReferenceError

Array = npt.NDArray[Any]

HOW = (
    "install it into this environment with: pip install lerobot "
    "(or prepare a separate environment: scripts/make_reference_env.sh DIR)"
)


class LeRobotAct:
    """ACT as LeRobot loads it from the checkpoint's folder, every weight required, computing in ``dtype``."""

    def __init__(self, checkpoint: Checkpoint, dtype: type[np.floating[Any]]) -> None:
        try:
            import torch
            from lerobot.policies.act.modeling_act import ACTPolicy
            from lerobot.policies.factory import make_pre_post_processors
        except ImportError as error:
            raise UnavailableReferenceError(f"LeRobot cannot be imported ({error}); {HOW}") from None
        self._torch = torch
        self._cameras = checkpoint.cameras
        folder = str(checkpoint.folder)
        self._dtype = torch.float64 if dtype is np.float64 else torch.float32
        # LeRobot prints while it loads; standard output is for results.
        with contextlib.redirect_stdout(sys.stderr):
            self._policy = ACTPolicy.from_pretrained(folder, strict=True).to(self._dtype)
        self._before, self._after = make_pre_post_processors(
            self._policy.config,
            pretrained_path=folder,
            preprocessor_overrides={"device_processor": {"device": "cpu"}},
        )
        # LeRobot creates its zero latent in float32 whatever the weights are.
        self._policy.model.encoder_latent_input_proj.register_forward_pre_hook(
            lambda module, inputs: tuple(x.to(module.weight.dtype) for x in inputs)
        )

    def predict(self, case: Case) -> Array:
        """Actions ``[chunk, A]`` in robot units."""
        observation = case.observation
        batch = {self._cameras[name].name: self._frame(x) for name, x in observation.images.items()}
        for key, values in (
            ("observation.state", observation.state),
            ("observation.environment_state", observation.env_state),
        ):
            if values is not None:
                batch[key] = self._torch.from_numpy(values).to(self._dtype)
        # LeRobot asks the state for its device even where the policy takes none.
        batch.setdefault("observation.state", self._torch.zeros(0, dtype=self._dtype))
        actions = self._after(self._policy.predict_action_chunk(self._before(batch)))
        result: Array = actions[0].numpy()
        return result

    def _frame(self, image: npt.NDArray[np.uint8]) -> Any:
        """Channels first, 0 to 1, as LeRobot's datasets and robots give them."""
        pixels = self._torch.from_numpy(image).permute(2, 0, 1).contiguous()
        return pixels.to(self._dtype) / 255


def reference(checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> LeRobotAct:
    """See :mod:`vla_simd_ros.fidelity.references`."""
    return LeRobotAct(checkpoint, dtype)
