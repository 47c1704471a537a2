"""The training loop: steps, progress, errors on held-out episodes, and a state to go on from exactly."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from vla_simd_ros.training.objectives import Objective, Source
from vla_simd_ros.training.recipe import Recipe, RecipeError

STATE_FILE, LOG_FILE = "training_state.pt", "log.csv"
_PROGRESS_S = 4.0
_TEXT = "model.text."
_BACKBONE = "model.backbone."
_LOSSES = ("loss", "l1", "kl", "cross_entropy", "consistency", "held_out_l1")
_COLUMNS = ("step", "samples", *_LOSSES, "learning_rate", "seconds")
_MOST_HELD_OUT = 512

B = TypeVar("B")


class Trainer(Generic[B]):
    """Trains the policy of ``objective`` in ``folder``, where its state and its log are kept.

    What is drawn at a step (the batch, the latent, dropout) depends on the seed and the step alone, so a run
    that was stopped and went on gives the same weights as one that was not.
    """

    def __init__(
        self,
        objective: Objective[B],
        recipe: Recipe,
        training: Source[B],
        held_out: Source[B],
        folder: Path,
        optimizer_settings: dict[str, float],
    ) -> None:
        self._objective = objective
        policy = self._policy = objective.policy
        self._recipe = recipe
        self._training = training
        self._held_out = held_out
        self._folder = folder
        self._device = next(policy.parameters()).device
        self._groups = _groups(policy, optimizer_settings)
        self._optimizer = torch.optim.AdamW(
            self._groups, weight_decay=optimizer_settings["optimizer_weight_decay"]
        )
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        self.step = 0
        """Steps taken."""
        self._seconds = 0.0

    def resume(self) -> None:
        """Go on from the state in the folder. Raises `RecipeError` if there is none that fits."""
        path = self._folder / STATE_FILE
        if not path.is_file():
            raise RecipeError(f"{path}: no such file, expected the state of an earlier run to go on from")
        # From wherever it was saved; network and optimizer put it where they are.
        state = torch.load(path, map_location="cpu", weights_only=True)
        try:
            self._policy.load_state_dict(state["policy"] | self._text())
            self._optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError) as error:
            raise RecipeError(f"{path}: does not fit this policy: {error}") from None
        self.step, self._seconds = state["step"], state["seconds"]
        _cut_log(self._folder / LOG_FILE, self.step)

    def save(self) -> None:
        """Write the state; an interrupted write leaves the one before."""
        weights = {k: v for k, v in self._policy.state_dict().items() if not k.startswith(_TEXT)}
        state = {
            "policy": weights,
            "optimizer": self._optimizer.state_dict(),
            "step": self.step,
            "seconds": self._seconds,
        }
        partial = self._folder / f"{STATE_FILE}.partial"
        torch.save(state, partial)
        partial.replace(self._folder / STATE_FILE)

    def run(
        self,
        say: Callable[[str], None],
        *,
        log_every: int,
        save_every_s: float,
        saved: Callable[[], None],
    ) -> None:
        """Train to the recipe's last step. ``saved`` is called whenever the state was written."""
        window = _Window()
        began = last_said = last_saved = time.monotonic()
        before = self._seconds
        self._policy.train()
        while self.step < self._recipe.steps:
            window.add(self._train_step())
            now = time.monotonic()
            self._seconds = before + now - began
            if self.step % log_every == 0 or self.step == self._recipe.steps:
                self._log(window, say)
                window = _Window()
                last_said = time.monotonic()
            elif now - last_said > _PROGRESS_S:
                say(self._progress(window))
                last_said = now
            if now - last_saved > save_every_s:
                self.save()
                saved()
                self._policy.train()
                last_saved = time.monotonic()
        self.save()
        saved()

    def held_out_l1(self) -> float:
        """The objective's mean error, in deviations of the action; NaN without such episodes."""
        rows = self._held_out.rows
        if not len(rows):
            return float("nan")
        rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), _MOST_HELD_OUT)).astype(int)]
        self._policy.eval()
        total = count = 0.0
        for start in range(0, len(rows), self._recipe.batch_size):
            batch = self._held_out.batch(rows[start : start + self._recipe.batch_size])
            errors = self._objective.errors(batch)
            total, count = total + float(errors.sum()), count + errors.numel()
        self._policy.train()
        return total / count

    def _train_step(self) -> dict[str, float]:
        recipe, step = self._recipe, self.step
        torch.manual_seed(int(np.random.SeedSequence([recipe.seed, 2, step]).generate_state(1)[0]))
        factor = recipe.learning_rate(step)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        batch = self._training.training(step)
        with self._autocast():
            loss, parts = self._objective.loss(batch)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self._policy.parameters(), recipe.grad_clip_norm)
        self._optimizer.step()
        self.step += 1
        return {"loss": loss.item(), **{name: part.item() for name, part in parts.items()}}

    def _autocast(self) -> AbstractContextManager[Any]:
        if self._recipe.precision == "fp32":
            return nullcontext()
        return torch.autocast(self._device.type, torch.bfloat16)

    def _log(self, window: _Window, say: Callable[[str], None]) -> None:
        means, held_out = window.means(), self.held_out_l1()
        rate = self._rates[0] * self._recipe.learning_rate(self.step - 1)
        row: dict[str, Any] = {"step": self.step, "samples": self.step * self._recipe.batch_size}
        row |= {name: f"{value:.6f}" for name, value in means.items()}
        row |= {"held_out_l1": f"{held_out:.6f}", "learning_rate": f"{rate:.3e}"}
        row |= {"seconds": f"{self._seconds:.0f}"}
        path = self._folder / LOG_FILE
        fresh = not path.is_file()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, _COLUMNS, restval="")
            if fresh:
                writer.writeheader()
            writer.writerow(row)
        say(f"{self._progress(window)}, held-out l1 {held_out:.4f}")

    def _progress(self, window: _Window) -> str:
        rate = window.rate(self._recipe)
        return f"step {self.step} of {self._recipe.steps}, {window}, {rate:.0f} samples/s"

    def _text(self) -> dict[str, Tensor]:
        return {k: v for k, v in self._policy.state_dict().items() if k.startswith(_TEXT)}


class _Window:
    """Losses since the last line of the log."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._count = 0
        self._began = time.monotonic()

    def add(self, parts: dict[str, float]) -> None:
        for name, value in parts.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._count += 1

    def means(self) -> dict[str, float]:
        return {name: total / self._count for name, total in self._sums.items()}

    def rate(self, recipe: Recipe) -> float:
        return self._count * recipe.batch_size / max(time.monotonic() - self._began, 1e-9)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.4f}" for name, value in self.means().items())


def _groups(policy: nn.Module, settings: dict[str, float]) -> list[dict[str, Any]]:
    """Backbone and the rest, each with its learning rate; what is frozen is in neither."""
    named = [(name, p) for name, p in policy.named_parameters() if p.requires_grad]
    groups = []
    for backbone, rate in ((False, "optimizer_lr"), (True, "optimizer_lr_backbone")):
        parameters = [p for name, p in named if name.startswith(_BACKBONE) is backbone]
        if parameters:
            groups.append({"params": parameters, "lr": settings[rate]})
    return groups


def _cut_log(path: Path, step: int) -> None:
    """Drop lines of steps that will be taken again."""
    if not path.is_file():
        return
    rows = list(read_log(path))
    kept = [row for row in rows if int(row["step"]) <= step]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(kept)


def read_log(path: Path) -> Iterator[dict[str, str]]:
    """The lines of a log, oldest first."""
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)
