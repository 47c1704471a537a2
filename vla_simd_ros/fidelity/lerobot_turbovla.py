"""LeRobot's TurboVLA: the packages lerobot-policy-turbovla and lerobot-policy-turbovla-so101 themselves."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.checkpoints.checkpoint import CONFIG, TEXT_ENCODER_FOLDER, VISION_ENCODER_FOLDER
from vla_simd_ros.checkpoints.tokenizer import TOKENIZER_JSON, VOCABULARY
from vla_simd_ros.checkpoints.wordpiece import TOKENIZER_CONFIG
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.errors import UnavailableReferenceError
from vla_simd_ros.policies.turbovla_config import BEFORE_NORM, HIDDEN_STATE

Array = npt.NDArray[Any]

_HOW = (
    "install it into this environment with: pip install lerobot {package} "
    "(or prepare a separate environment: scripts/make_reference_env.sh DIR)"
)


class LeRobotTurboVla:
    """TurboVLA as its package loads it from the checkpoint's folder, every weight required, computing in
    ``dtype``.

    The package asks a hub for the configurations of its backbones and for the tokenizer; it is given those in
    the folder, and no hub.
    """

    def __init__(self, checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> None:
        package = f"lerobot_policy_{checkpoint.type}"
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        try:
            import torch
            from lerobot.configs import PreTrainedConfig
            from lerobot.policies.factory import make_pre_post_processors

            policy = importlib.import_module(package).TurboVLAPolicy
        except ImportError as error:
            how = _HOW.format(package=package.replace("_", "-"))
            raise UnavailableReferenceError(f"{package} cannot be imported ({error}); {how}") from None
        self._torch = torch
        self._instruction = instruction
        self._cameras = checkpoint.cameras
        self._dtype = torch.float64 if dtype is np.float64 else torch.float32
        folder = str(checkpoint.folder)
        # LeRobot prints while it loads; standard output is for results.
        with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as hub:
            config = PreTrainedConfig.from_pretrained(_without_hub(checkpoint, Path(hub)))
            self._policy = policy.from_pretrained(folder, config=config, strict=True).to(self._dtype)
        if checkpoint.config.get(HIDDEN_STATE) == BEFORE_NORM:
            encoder = self._policy.model.vision_encoder
            setattr(encoder, "norm" if hasattr(encoder, "norm") else "layernorm", torch.nn.Identity())
        self._before, self._after = make_pre_post_processors(
            config, pretrained_path=folder, preprocessor_overrides={"device_processor": {"device": "cpu"}}
        )

    def predict(self, case: Case) -> Array:
        """Actions ``[chunk, A]`` in robot units."""
        observation = case.observation
        batch: dict[str, Any] = {
            self._cameras[name].name: self._frame(x) for name, x in observation.images.items()
        }
        if observation.state is not None:
            batch["observation.state"] = self._torch.from_numpy(observation.state).to(self._dtype)
        batch["task"] = self._instruction
        actions = self._after(self._policy.predict_action_chunk(self._before(batch)))
        result: Array = actions[0].numpy()
        return result

    def _frame(self, image: npt.NDArray[np.uint8]) -> Any:
        """Channels first, 0 to 1, as LeRobot's datasets and robots give them."""
        pixels = self._torch.from_numpy(image).permute(2, 0, 1).contiguous()
        return pixels.to(self._dtype) / 255


def reference(checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> LeRobotTurboVla:
    """See :mod:`vla_simd_ros.fidelity.references`; the checkpoint tells the form."""
    return LeRobotTurboVla(checkpoint, instruction, dtype)


def _without_hub(checkpoint: Checkpoint, folder: Path) -> Path:
    """A folder with the policy's configuration, whose backbones are folders too as far as they are known."""
    config = {name: value for name, value in checkpoint.config.items() if name != HIDDEN_STATE}
    config["load_pretrained_backbones"] = False
    vision = checkpoint.folder / VISION_ENCODER_FOLDER
    if (vision / CONFIG).is_file():
        config["vision_backbone"] = str(vision)
    text = checkpoint.folder / TEXT_ENCODER_FOLDER
    if (text / CONFIG).is_file():
        shutil.copytree(text, folder / TEXT_ENCODER_FOLDER)
        config["language_backbone"] = str(folder / TEXT_ENCODER_FOLDER)
        for name in (TOKENIZER_JSON, TOKENIZER_CONFIG, VOCABULARY):
            if (checkpoint.folder / name).is_file():
                shutil.copy(checkpoint.folder / name, folder / TEXT_ENCODER_FOLDER)
    (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    return folder
