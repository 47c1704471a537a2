"""A training run in a folder: its record, how it goes on, and what it leaves."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vla_simd_ros.checkpoints.execution import EXECUTION, execution_file, pacing_from
from vla_simd_ros.control.query_timing import Pacing
from vla_simd_ros.training.curve import CURVE, draw_curve
from vla_simd_ros.training.export import PRETRAINED
from vla_simd_ros.training.recipe import TRAIN_CONFIG, RecipeError
from vla_simd_ros.training.trainer import LOG_FILE, Trainer

Say = Callable[[str], None]


class Run(ABC):
    """A run that is ready to train; a descendant makes its trainer and writes its policy."""

    _folder: Path
    _say: Say
    _record: dict[str, Any]
    _trainer: Trainer[Any]
    _policy: nn.Module

    @abstractmethod
    def _write_policy(self, folder: Path, record: Mapping[str, Any]) -> None:
        """Replace ``folder`` by the policy as it is now."""

    def _execution(self, asked: Pacing | None, earlier: Mapping[str, Any]) -> dict[str, Any]:
        """What the policy is to say of its execution: as asked, or as the run to go on from has it."""
        pacing = asked or pacing_from(earlier.get("execution", {}), self._folder / TRAIN_CONFIG)
        return dict(execution_file(pacing)) if pacing else {}

    def _told(self) -> dict[str, Path | dict[str, Any]]:
        """Files beside the policy that tell of the run, by name: its log, and how to execute it."""
        log, execution = self._folder / LOG_FILE, self._record["execution"]
        files: dict[str, Path | dict[str, Any]] = {LOG_FILE: log} if log.is_file() else {}
        return {**files, EXECUTION: execution} if execution else files

    def _begin(self, resume: bool) -> None:
        """Go on from the state in the folder, if asked to, and keep the record."""
        if resume:
            self._trainer.resume()
        text = json.dumps(self._record, indent=2) + "\n"
        (self._folder / TRAIN_CONFIG).write_text(text, encoding="utf-8")

    @property
    def steps_taken(self) -> int:
        """Steps of this run and those it went on from."""
        return self._trainer.step

    def train(self, *, log_every: int, save_every_s: float) -> Path:
        """Train to the end; returns the folder of the trained policy."""
        trained = sum(p.numel() for p in self._policy.parameters() if p.requires_grad)
        self._say(
            f"{self._record['policy']} of {trained / 1e6:.2f} M trained parameters on "
            f"{self._record['episodes']} episodes, from step {self._trainer.step}"
        )
        try:
            self._trainer.run(self._say, log_every=log_every, save_every_s=save_every_s, saved=self._export)
        except KeyboardInterrupt:
            self._trainer.save()
            self._export()
            self._say(f"stopped at step {self._trainer.step}; --resume goes on from there")
            raise
        return self._folder / PRETRAINED

    def _export(self) -> None:
        self._write_policy(self._folder / PRETRAINED, {**self._record, "step": self._trainer.step})
        if (self._folder / LOG_FILE).is_file():
            draw_curve(self._folder / LOG_FILE, self._folder / CURVE)


def earlier_record(folder: Path, policy: str, resume: bool) -> dict[str, Any]:
    """The record of the run to go on from; empty for a new one, whose folder must not hold another."""
    path = folder / TRAIN_CONFIG
    if not resume:
        if path.exists():
            raise RecipeError(f"{folder}: holds a run already; --resume goes on with it")
        return {}
    if not path.is_file():
        raise RecipeError(f"{path}: no such file, expected the record of an earlier run to go on from")
    earlier: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if earlier["policy"] != policy:
        raise RecipeError(f"{path}: is of a run of {earlier['policy']}, expected {policy}")
    return earlier


def usable_device(name: str) -> torch.device:
    """The device that PyTorch calls so. Raises RecipeError where it does not know it or cannot use it, which
    is better told before a dataset's pictures are decoded than after."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RecipeError(
            f"device '{name}' cannot be used ({reason}), expected cpu or one that this PyTorch "
            f"({torch.__version__}) has"
        ) from None
    return device


def device_of(policy: nn.Module) -> torch.device:
    """Where a policy's parameters are."""
    return next(policy.parameters()).device
