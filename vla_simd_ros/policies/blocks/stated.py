"""The configuration of a backbone as the transformers library writes it: fields at their default left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.errors import CheckpointError


@dataclass(frozen=True)
class Stated:
    """Fields of a backbone's configuration; ``where`` it comes from is named in errors."""

    fields: Mapping[str, Any]
    where: str

    @property
    def model_type(self) -> str:
        """The kind of network."""
        return str(json_file.field(self.fields, "model_type", str, self.where))

    def size(self, name: str, default: int, least: int = 1) -> int:
        """A whole number of ``least`` or more."""
        value: int = json_file.field({name: default, **self.fields}, name, int, self.where)
        if value < least:
            raise self.misfit(name, value, f"{least} or more")
        return value

    def number(self, name: str, default: float) -> float:
        """A number greater than 0."""
        value = float(json_file.field({name: default, **self.fields}, name, float, self.where))
        if value <= 0:
            raise self.misfit(name, value, "a number greater than 0")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        return bool(json_file.field({name: default, **self.fields}, name, bool, self.where))

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """One of several words."""
        value: str = json_file.field({name: default, **self.fields}, name, str, self.where)
        if value not in choices:
            raise self.misfit(name, f"'{value}'", " or ".join(f"'{choice}'" for choice in choices))
        return value

    def heads(self, width: int, default: int) -> int:
        """The attention heads, which share ``width`` evenly."""
        heads = self.size("num_attention_heads", default)
        if width % heads:
            raise self.misfit("hidden_size", width, f"a multiple of num_attention_heads ({heads})")
        return heads

    def misfit(self, name: str, value: object, expected: str) -> CheckpointError:
        """The error of a field that has another value than expected."""
        return CheckpointError(f"{self.where}: {name} is {value}, expected {expected}")
