"""How a policy is trained: what is asked for, checked, and kept beside the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

TRAIN_CONFIG = "train_config.json"
PRECISIONS = ("fp32", "bf16")


class RecipeError(ValueError):
    """A setting of training that cannot be; the message names it."""


@dataclass(frozen=True)
class Recipe:
    """Settings of training that are no part of the policy's own configuration."""

    steps: int = 100_000
    batch_size: int = 64
    seed: int = 0
    warmup_steps: int = 500
    """Steps in which the learning rate rises from nothing."""
    decay_steps: int = 0
    """The last steps, in which it falls to nothing."""
    grad_clip_norm: float = 10.0
    held_out: float = 0.05
    """Share of the episodes that are not trained on, and that errors are measured with."""
    frame_stride: int = 1
    """Observations are every so-many-th frame; their actions are those of all frames."""
    image_shift: int = 0
    """Pixels by which a camera's picture is moved at most, either way and both ways."""
    image_brightness: float = 0.0
    """Share by which a picture is made darker or brighter at most."""
    state_noise: float = 0.0
    """Deviation of what is added to the state, in deviations of the state itself."""
    precision: str = "fp32"
    """Type of products in training; sums, weights and evaluation are fp32."""

    def __post_init__(self) -> None:
        least = {"steps": 1, "batch_size": 1, "frame_stride": 1, "grad_clip_norm": 1e-9}
        for name, value in asdict(self).items():
            if isinstance(value, str):
                continue
            if not value >= least.get(name, 0):
                raise RecipeError(f"{name} is {value}, expected {least.get(name, 0):g} or more")
        for name in ("held_out", "image_brightness"):
            if getattr(self, name) >= 1:
                raise RecipeError(f"{name} is {getattr(self, name)}, expected less than 1")
        if self.precision not in PRECISIONS:
            raise RecipeError(f"precision is '{self.precision}', expected one of {', '.join(PRECISIONS)}")

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """From the fields of a `train_config.json`; unknown ones and wrong types raise `RecipeError`."""
        known = {f.name: type(f.default) for f in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise RecipeError(f"training has no setting '{name}', expected one of {', '.join(known)}")
            number = known[name] is float and isinstance(value, int | float)
            if isinstance(value, bool) or not (number or isinstance(value, known[name])):
                raise RecipeError(f"{name} is {value!r}, expected a value like {getattr(cls, name)!r}")
        return cls(**values)

    def learning_rate(self, step: int) -> float:
        """Factor of the learning rate at ``step`` (from 0)."""
        rise = (step + 1) / (self.warmup_steps + 1)
        fall = (self.steps - step) / (self.decay_steps + 1)
        return min(1.0, rise, fall)


@dataclass(frozen=True)
class TokenRecipe(Recipe):
    """Settings of training an action-token policy."""

    action_quantile: float = 0.001
    """Share of the actions that lie below the lowest bin, and above the highest one."""
    consistency: float = 1.0
    """Weight of the consistency loss in distillation; with 0 only the teacher's tokens are learned."""
    omega: float = 1.0
    """Weight of the cross-entropy beside it."""
    fresh_guesses: float = 0.25
    """Share of the guesses that are new random ones, which lead to the same fixed point."""
    repeated_guesses: float = 0.5
    """Share of the guesses that are the first token repeated, the decoders' other initialization; those that
    are neither are states of the harvested trajectories."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fresh_guesses + self.repeated_guesses > 1:
            raise RecipeError(
                f"fresh_guesses and repeated_guesses are {self.fresh_guesses} and {self.repeated_guesses}, "
                "expected shares that are 1 together at most"
            )
        if self.action_quantile >= 0.5:
            raise RecipeError(f"action_quantile is {self.action_quantile}, expected less than 0.5")
        if not self.consistency and not self.omega:
            raise RecipeError("consistency and omega are both 0, expected a weight above 0 for one of them")
