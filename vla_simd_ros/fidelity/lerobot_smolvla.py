"""LeRobot's own SmolVLA with its own processors (LeRobot 0.6 and later)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.errors import UnavailableReferenceError
from vla_simd_ros.fidelity.lerobot_act import HOW
from vla_simd_ros.fidelity.replaced_names import ReplacedNames
from vla_simd_ros.inference import Prefix

Array = npt.NDArray[Any]


class LeRobotSmolVla:
    """SmolVLA as LeRobot loads it from the checkpoint's folder, every weight required, in ``dtype``.

    In float64 everything is float64, but for what LeRobot defines in float32: the angles of rotary positions
    and the embedding of the time.
    """

    def __init__(self, checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> None:
        try:
            import torch
            from lerobot.configs import PreTrainedConfig
            from lerobot.policies.factory import make_pre_post_processors
            from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
        except ImportError as error:
            raise UnavailableReferenceError(f"LeRobot cannot be imported ({error}); {HOW}") from None
        self._torch = torch
        self._cameras = checkpoint.cameras
        self._instruction = instruction
        self._dtype = torch.float64 if dtype is np.float64 else torch.float32
        folder, model = str(checkpoint.folder), str(_model_folder(checkpoint))
        # LeRobot prints while it loads; standard output is for results.
        with contextlib.redirect_stdout(sys.stderr):
            config = PreTrainedConfig.from_pretrained(folder)
            config.vlm_model_name, config.load_vlm_weights = model, False
            self._rtc = config.rtc_config
            self._policy = SmolVLAPolicy.from_pretrained(folder, config=config, strict=True).to(self._dtype)
            self._before, self._after = make_pre_post_processors(
                config,
                pretrained_path=folder,
                preprocessor_overrides={
                    "device_processor": {"device": "cpu"},
                    "tokenizer_processor": {"tokenizer_name": model},
                },
            )

    def token_ids(self, case: Case) -> list[int]:
        """The instruction as LeRobot's tokenizer writes it."""
        ids: list[int] = self._prepared(case)["observation.language.tokens"][0].tolist()
        return ids

    def predict(self, case: Case) -> Array:
        """Actions ``[chunk, A]`` in robot units."""
        torch = self._torch
        self._policy.config.num_steps = case.num_steps
        noise = torch.from_numpy(case.noise)[None].to(self._dtype)
        with _in_float64() if self._dtype is torch.float64 else contextlib.nullcontext():
            prepared = self._prepared(case)
            guidance = self._guidance(case.prefix, prepared.get("action"))
            chunk = self._policy.predict_action_chunk(prepared, noise=noise, **guidance)
            actions: Array = self._after(chunk)[0].numpy()
        return actions

    def _prepared(self, case: Case) -> dict[str, Any]:
        """What LeRobot makes of a raw observation, and of the rows of a previous chunk."""
        torch, observation = self._torch, case.observation
        batch: dict[str, Any] = {self._cameras[n].name: self._frame(x) for n, x in observation.images.items()}
        batch["observation.state"] = torch.from_numpy(observation.state).to(self._dtype)
        batch["task"] = self._instruction
        if case.prefix is not None:
            batch["action"] = torch.from_numpy(np.asarray(case.prefix.actions)).to(self._dtype)
        prepared: dict[str, Any] = self._before(batch)
        return prepared

    def _guidance(self, prefix: Prefix | None, normalized: Any) -> dict[str, Any]:
        """Arguments of a query that continues the previous chunk, whose rows are ``normalized``; what the
        prefix leaves open is as LeRobot reads it from the checkpoint."""
        self._policy.config.rtc_config = None
        if prefix is None:
            return {}
        from lerobot.configs import RTCAttentionSchedule
        from lerobot.policies.rtc.configuration_rtc import RTCConfig

        asked = {
            "prefix_attention_schedule": prefix.schedule and RTCAttentionSchedule(prefix.schedule),
            "max_guidance_weight": prefix.max_guidance_weight,
            "execution_horizon": prefix.horizon,
        }
        asked = {name: value for name, value in asked.items() if value is not None}
        self._policy.config.rtc_config = replace(self._rtc or RTCConfig(), enabled=True, **asked)
        self._policy.init_rtc_processor()
        return {"prev_chunk_left_over": normalized, "inference_delay": prefix.frozen}

    def _frame(self, image: npt.NDArray[np.uint8]) -> Any:
        """Channels first, 0 to 1, as LeRobot's datasets and robots give them."""
        pixels = self._torch.from_numpy(image).permute(2, 0, 1).contiguous()
        return pixels.to(self._dtype) / 255


def reference(checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> LeRobotSmolVla:
    """See :mod:`vla_simd_ros.fidelity.references`."""
    return LeRobotSmolVla(checkpoint, instruction, dtype)


def _model_folder(checkpoint: Checkpoint) -> Path:
    folder = checkpoint.named_folder("vlm_model_name")
    if folder is None:
        raise UnavailableReferenceError(
            f"{checkpoint.folder}: vlm_model_name is '{checkpoint.config.get('vlm_model_name')}', expected a "
            "folder with the model's config.json, tokenizer and processor: LeRobot needs them"
        )
    return folder.resolve()


@contextlib.contextmanager
def _in_float64() -> Iterator[None]:
    """LeRobot's SmolVLA made to compute in float64 what it converts to float32 for the purpose."""
    import torch
    from lerobot.policies.smolvla import modeling_smolvla, smolvlm_with_expert
    from transformers.models.llama import modeling_llama

    embedding = modeling_smolvla.create_sinusoidal_pos_embedding
    rotated = smolvlm_with_expert.apply_rope
    wide = ReplacedNames(torch, float32=torch.float64)
    exact = ReplacedNames(
        torch, sin=lambda x: x.double().sin().float(), cos=lambda x: x.double().cos().float()
    )

    def rounded(*args: Any, **kwargs: Any) -> Any:
        return embedding(*args, **kwargs).to(torch.float32)

    def turned(x: Any, positions: Any) -> Any:
        """LeRobot's rotation of x = a + b i by its own angles: what becomes of 1, times x."""
        half = x.shape[-1] // 2
        one = torch.zeros(1, positions.shape[1], 1, x.shape[-1])
        one[..., :half] = 1
        with mock.patch.object(smolvlm_with_expert, "torch", exact):
            angles = rotated(one, positions).to(x.dtype)
        cos, sin = angles[..., :half], angles[..., half:]
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    with contextlib.ExitStack() as changes:
        for module in (modeling_smolvla, smolvlm_with_expert, modeling_llama):
            changes.enter_context(mock.patch.object(module, "torch", wide))
        changes.enter_context(mock.patch.object(modeling_smolvla, "create_sinusoidal_pos_embedding", rounded))
        changes.enter_context(mock.patch.object(smolvlm_with_expert, "apply_rope", turned))
        yield
