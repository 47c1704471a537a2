"""Writes what was trained as a LeRobot ``pretrained_model`` folder that the engine runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from vla_simd_ros.checkpoints.checkpoint import SHARED_WEIGHTS
from vla_simd_ros.checkpoints.synthesis import features
from vla_simd_ros.checkpoints.synthesis.folder import write_folder
from vla_simd_ros.checkpoints.synthesis.impact import impact_preprocessor_steps
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe as Content
from vla_simd_ros.training.recipe import TRAIN_CONFIG

PRETRAINED = "pretrained_model"
_TEXT = "model.text.model."
# Fitted to the data, not trained.
_BINS = "model.tokens.action_"
# Counts batches; the norms that the engine knows have none.
_UNREAD = ".num_batches_tracked"


def export_policy(
    folder: Path,
    policy: nn.Module,
    config: dict[str, Any],
    statistics: Mapping[str, npt.NDArray[np.float32]],
    tokenizer_files: Mapping[str, Any],
    train_config: Mapping[str, Any],
    shared: Path | None = None,
    half: bool = False,
) -> None:
    """Replace ``folder`` by the policy as it is now.

    The frozen text encoder is stored in bfloat16, which holds its values exactly. With ``shared``, only what
    was trained is stored; the checkpoint in that folder has the rest. With ``half``, what was trained is
    rounded to float16.
    """
    if shared is not None:
        config = {**config, SHARED_WEIGHTS: os.path.relpath(shared.resolve(), folder.resolve())}
    weights = {name for name, parameter in policy.named_parameters() if parameter.requires_grad}
    trained = weights | {name for name in policy.state_dict() if name.startswith(_BINS)}
    tensors = {
        name: value.detach().float().cpu().contiguous().numpy()
        for name, value in policy.state_dict().items()
        if not name.endswith(_UNREAD) and (shared is None or name in trained)
    }
    before = (
        features.preprocessor_steps(config) if config["type"] == "act" else impact_preprocessor_steps(config)
    )
    content = Content(
        config,
        tensors,
        before,
        features.postprocessor_steps(config),
        {**tokenizer_files, TRAIN_CONFIG: dict(train_config)},
        {_TEXT: "bf16", **(dict.fromkeys(weights, "fp16") if half else {})},
    )
    fresh = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    write_folder(fresh, content, dict(statistics), "fp32")
    if folder.exists():
        shutil.rmtree(folder)
    fresh.replace(folder)
