"""What can be asked of a random checkpoint; the same for every policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DTYPES = ("fp32", "bf16", "fp16")


class OptionError(ValueError):
    """An option has a value that no checkpoint, or not this policy's, can have."""


@dataclass(frozen=True)
class Camera:
    """A camera of the policy and the size of its images in pixels."""

    name: str
    height: int
    width: int


@dataclass(frozen=True)
class Options:
    """The robot, the sizes that a policy may change, and settings by configuration field.

    A size left None is the policy's own: the published one, but for policies that are scaled down unless
    ``full_size``. ``settings`` names fields of config.json, nested ones with
    dots (``text_config.num_layers``), and wins over the sizes.
    """

    seed: int = 0
    cameras: tuple[Camera, ...] = (Camera("front", 480, 640), Camera("wrist", 480, 640))
    state_dim: int = 6
    env_state_dim: int = 0
    action_dim: int = 6
    dtype: str = "fp32"
    sizes: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    full_size: bool = False

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise OptionError(f"seed is {self.seed}, expected 0 or more")
        if self.dtype not in DTYPES:
            raise OptionError(f"dtype is '{self.dtype}', expected one of {', '.join(DTYPES)}")
        for name, value, least in (
            ("state-dim", self.state_dim, 0),
            ("env-state-dim", self.env_state_dim, 0),
            ("action-dim", self.action_dim, 1),
        ):
            if value < least:
                raise OptionError(f"{name} is {value}, expected {least} or more")
        self._check_cameras()

    def _check_cameras(self) -> None:
        names = [camera.name for camera in self.cameras]
        for camera in self.cameras:
            if names.count(camera.name) > 1:
                raise OptionError(f"camera '{camera.name}' is named twice")
            if min(camera.height, camera.width) < 1:
                size = f"{camera.height}x{camera.width}"
                raise OptionError(f"camera '{camera.name}': size is {size}, expected positive numbers")


def apply_options(config: dict[str, Any], fields: Mapping[str, str], policy: str, options: Options) -> None:
    """Write sizes and settings into ``config``; ``fields`` maps the sizes of ``policy`` to config fields."""
    for name, value in options.sizes.items():
        if name not in fields:
            raise OptionError(f"{policy} has no --{name.replace('_', '-')}")
        _set(config, fields[name], value)
    for path, value in options.settings.items():
        _set(config, path, value)


def _set(config: dict[str, Any], path: str, value: Any) -> None:
    *parents, leaf = path.split(".")
    owner: Any = config
    for parent in parents:
        owner = owner.get(parent) if isinstance(owner, dict) else None
    if not isinstance(owner, dict) or leaf not in owner:
        raise OptionError(f"config.json has no field '{path}'")
    old = owner[leaf]
    if old is not None and not _same_kind(old, value):
        raise OptionError(f"'{path}' is {value!r}, expected a value like {old!r}")
    owner[leaf] = value


def _same_kind(old: Any, value: Any) -> bool:
    if isinstance(old, bool) or isinstance(value, bool):
        return isinstance(old, bool) and isinstance(value, bool)
    if isinstance(old, float):
        return isinstance(value, int | float)
    return isinstance(value, type(old))
