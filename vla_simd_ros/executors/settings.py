"""The settings of the SIMD engine: everything that is chosen at run time, with its default and its values.

What each of them is worth depends on the CPU. None changes what is computed beyond rounding, and those that
only decide who computes what and when (threads, affinity, waiting, spin_us, schedule, parallel_cutoff,
block_rows, threads_per_view), and weight_storage, do not change a bit.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vla_simd_ros.executors.convolution import CONVOLUTIONS, DEFAULT_CONVOLUTION, EXACT_CONVOLUTIONS
from vla_simd_ros.executors.convolution_forms import ConvolutionShape, Form, parse_layers
from vla_simd_ros.executors.linear import EXACT_LINEARS, LINEARS

MOST_THREADS = 1024
_LONGEST_SPIN_US = 1_000_000
_MOST_CPUS = 1 << 16
_MOST_ELEMENTS = 1 << 40
_MOST_ROWS = 1 << 30


class SettingError(ValueError):
    """A setting that does not exist, or a value that it cannot have; says which there are."""


@dataclass(frozen=True)
class Setting:
    """What a setting is for and which values it takes: one of ``choices``; where there are none, an integer
    (or several) from ``minimum`` to ``maximum``; any printable text where there is no ``maximum`` either."""

    description: str
    choices: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int | None = None

    @property
    def expectation(self) -> str:
        """The values, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        return "printable text" if self.maximum is None else f"{self.minimum} to {self.maximum}"


def _field(default: Any, description: str, *choices: str, maximum: int | None = None) -> Any:
    setting = Setting(description, choices, maximum=maximum)
    return dataclasses.field(default=default, metadata={"setting": setting})


@dataclass(frozen=True)
class EngineSettings:
    """All settings of an engine. Raises :class:`SettingError`, which names the setting, the value and what is
    expected. What the machine cannot give (an instruction set, a CPU) is found out by the engine itself."""

    threads: int = _field(
        0,
        "threads that compute, the caller's included; 0: one per physical core, or per CPU of affinity",
        maximum=MOST_THREADS,
    )
    affinity: tuple[int, ...] = _field(
        (), "CPUs that the threads run on, with commas; empty: any", maximum=_MOST_CPUS
    )
    isa: str = _field("", "instruction set of the kernels; empty: VLA_SIMD_ISA, or the best one of this CPU")
    waiting: str = _field(
        "active",
        "what a thread without work does: active polls for it for spin_us, then sleeps; passive only sleeps",
        "active",
        "passive",
    )
    spin_us: int = _field(
        200, "microseconds that active waiting polls before it sleeps", maximum=_LONGEST_SPIN_US
    )
    schedule: str = _field(
        "dynamic",
        "who does which part of an operation: static gives each thread a fixed share, dynamic lets it take "
        "over from others",
        "static",
        "dynamic",
    )
    parallel_cutoff: int = _field(
        1024, "an operation of fewer results is left to one thread", maximum=_MOST_ELEMENTS
    )
    block_rows: int = _field(
        0,
        "rows of activations that pass by a part of the weights before the next part is taken, in linear "
        "layers and direct convolutions; 0: as fit the cache",
        maximum=_MOST_ROWS,
    )
    weight_packing: str = _field(
        "on",
        "whether the weights of linear layers are rearranged at load into panels as kernels read them; off: "
        "they are read row by row",
        "on",
        "off",
    )
    min_panel_rows: int = _field(
        1,
        "linear layers of fewer rows of activations read their weights row by row with weight_packing on too",
        maximum=_MOST_ROWS,
    )
    weight_storage: str = _field(
        "auto",
        "how weights are kept: auto keeps those of a layer in blocks of few bits where they are stored in "
        "such, or in bfloat16, in half the memory, where all of them are such values, and expands them when "
        "they are multiplied; float32 expands them at load",
        "auto",
        "float32",
    )
    attention: str = _field(
        "fused",
        "how attention is computed: fused keeps the scores of a few queries in a cache, materialized writes "
        "those of all to memory between a product, a softmax and a product, as matrix libraries do",
        "fused",
        "materialized",
    )
    linear: str = _field(
        "auto",
        "algorithm of fp32 linear layers: direct; strassen, which multiplies an eighth less, where a layer "
        "divides into quarters; auto takes it where the layer is large enough to be faster by it, and its "
        "weights are not kept in bfloat16",
        *LINEARS,
    )
    threads_per_view: int = _field(
        0,
        "threads of each camera's backbone, several of which run at the same time then; 0: all threads on "
        "one camera after the other",
        maximum=MOST_THREADS,
    )
    convolution: str = _field(
        DEFAULT_CONVOLUTION,
        "algorithm of convolutions: direct; flat, which stores all patches first; or, where they are 3x3 or "
        "7x7, Winograd's method; auto chooses for each layer by a rule fitted to measurements, exact the "
        "same among those that round no more than direct, measured the fastest when it is loaded",
        *CONVOLUTIONS,
    )
    convolution_layers: str = _field(
        "", "algorithms of single layers, as HxWxC-FkKsSpP=ALGORITHM with commas, before that of convolution"
    )

    def __post_init__(self) -> None:
        if isinstance(self.affinity, Iterable) and not isinstance(self.affinity, str):
            # A list where they come from JSON or ROS.
            object.__setattr__(self, "affinity", tuple(self.affinity))
        for name, setting in settings().items():
            value = getattr(self, name)
            if not _fits(setting, value, _DEFAULTS[name]):
                raise SettingError(f"{name}={value!r}: expected {setting.expectation}")
        if len(set(self.affinity)) < len(self.affinity):
            raise SettingError(f"affinity={self.affinity!r}: expected each CPU once")
        _layers(self.convolution_layers)

    @property
    def panel_rows(self) -> int:
        """Fewest rows of activations of a linear layer whose weights are packed into panels."""
        return self.min_panel_rows if self.weight_packing == "on" else sys.maxsize

    def but(self, /, **changes: Any) -> EngineSettings:
        """These settings with some replaced, by name."""
        for name in changes:
            _check_name(name)
        return dataclasses.replace(self, **changes)

    def changed(self) -> dict[str, Any]:
        """The settings that are not at their default, by name."""
        return {
            name: getattr(self, name) for name, value in _DEFAULTS.items() if getattr(self, name) != value
        }


def settings() -> Mapping[str, Setting]:
    """What there is to set, by name, in the order of :class:`EngineSettings`."""
    return {field.name: field.metadata["setting"] for field in dataclasses.fields(EngineSettings)}


def keep_exact(changes: Mapping[str, Any]) -> dict[str, Any]:
    """``changes`` that keep the actions as close to float64 as fp32 can: convolution="exact" and
    linear="direct" where they name none. Raises :class:`SettingError` for those that contradict that."""
    exact = {"convolution": "exact", "linear": "direct", **changes}
    for name, allowed in (("convolution", EXACT_CONVOLUTIONS), ("linear", EXACT_LINEARS)):
        if exact[name] not in allowed:
            expected = f"expected one of {', '.join(allowed)} with exact"
            raise SettingError(f"{name}={exact[name]!r}: {expected}")
    expected = f"expected one of {', '.join(EXACT_CONVOLUTIONS)} with exact"
    for shape, form in _layers(exact.get("convolution_layers", "")).items():
        if form.algorithm not in EXACT_CONVOLUTIONS:
            raise SettingError(f"convolution_layers: {shape} has '{form.algorithm}', {expected}")
    return exact


def _layers(text: str) -> dict[ConvolutionShape, Form]:
    try:
        return parse_layers(text)
    except ValueError as error:
        raise SettingError(str(error)) from None


def parse_settings(assignments: Iterable[str]) -> dict[str, Any]:
    """The values in texts "NAME=VALUE", for :meth:`EngineSettings.but`; raises :class:`SettingError`."""
    changes: dict[str, Any] = {}
    for assignment in assignments:
        name, separator, text = (part.strip() for part in assignment.partition("="))
        if not separator:
            raise SettingError(f"'{assignment}' is no setting, expected NAME=VALUE")
        _check_name(name)
        changes[name] = _parse(name, text)
    return changes


def _parse(name: str, text: str) -> Any:
    default = _DEFAULTS[name]
    if isinstance(default, str):
        return text
    try:
        return tuple(map(int, filter(None, text.split(",")))) if isinstance(default, tuple) else int(text)
    except ValueError:
        raise SettingError(f"{name}={text!r}: expected {settings()[name].expectation}") from None


def _check_name(name: str) -> None:
    if name not in _DEFAULTS:
        raise SettingError(f"setting '{name}' is unknown, expected one of {', '.join(_DEFAULTS)}")


def _fits(setting: Setting, value: Any, default: Any) -> bool:
    if isinstance(default, str):
        return isinstance(value, str) and (
            value in setting.choices if setting.choices else value.isprintable()
        )
    numbers: Sequence[Any] = value if isinstance(value, tuple) else (value,)
    return isinstance(value, type(default)) and all(
        type(number) is int and setting.minimum <= number <= (setting.maximum or 0) for number in numbers
    )


_DEFAULTS: Mapping[str, Any] = {field.name: field.default for field in dataclasses.fields(EngineSettings)}
