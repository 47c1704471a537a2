"""What each block of a policy costs on the first and on the second executor, and its file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

FORMAT = 1
_LARGEST = 2**62
"""Of whole numbers: JSON has some that are more than any memory, and than floating point can say."""


class CostError(ValueError):
    """Costs that cannot be right; says which and why."""


@dataclass(frozen=True)
class BlockCost:
    """One block.

    prefix_s, suffix_s: seconds on the first and on the second executor; infinite where it cannot run there
    prefix_bytes, suffix_bytes: memory for its weights on either side
    boundary_bytes: what crosses a cut after it, in every frame
    prefix_held_bytes: all that a prefix that ends with it holds: weights, those that the instruction reads
        included, and activations; 0 where only weights are known
    suffix_held_bytes: the same of a suffix that begins behind it
    """

    name: str
    prefix_s: float
    suffix_s: float
    prefix_bytes: int
    suffix_bytes: int
    boundary_bytes: int
    prefix_held_bytes: int = 0
    suffix_held_bytes: int = 0


@dataclass(frozen=True)
class StageCosts:
    """The blocks in order, and what a cut adds.

    transfer_s: seconds that a transfer takes whatever its size
    transfer_rate: bytes per second
    prefix_base_bytes, suffix_base_bytes: memory of either side beside the weights, where a block does not
        tell what is held with a cut after it
    whole_bytes: all that an executor holds that has every block; 0 where that is not known
    suffix_threads: threads of the second executor in the measurement
    saturation: the share of these threads from which on more do not make it faster, see
        :meth:`suffix_slowdown`
    source: where the numbers come from, for reports
    """

    blocks: tuple[BlockCost, ...]
    transfer_s: float
    transfer_rate: float
    prefix_base_bytes: int = 0
    suffix_base_bytes: int = 0
    whole_bytes: int = 0
    suffix_threads: int = 1
    saturation: float = 1.0
    source: str = ""

    def __post_init__(self) -> None:
        if not self.blocks:
            raise CostError("there are no blocks, expected at least one")
        names = [block.name for block in self.blocks]
        for name in names:
            if names.count(name) > 1:
                raise CostError(f"block '{name}' is there twice")
            if not name.isprintable():
                raise CostError(f"a block's name is {name!r}, expected one that can be printed")
        for block in self.blocks:
            _check_block(block)
        for field in ("transfer_s", "prefix_base_bytes", "suffix_base_bytes", "whole_bytes"):
            _not_negative(field, getattr(self, field))
        if not self.transfer_rate > 0.0:
            raise CostError(f"transfer_rate is {self.transfer_rate}, expected a positive number")
        if not 0.0 < self.saturation <= 1.0:
            raise CostError(f"saturation is {self.saturation}, expected more than 0 and at most 1")
        if self.suffix_threads < 1:
            raise CostError(f"suffix_threads is {self.suffix_threads}, expected 1 or more")

    def suffix_slowdown(self, threads: float) -> float:
        """How much longer the second executor takes with ``threads`` than it was measured to take.

        Its products are limited by memory from ``saturation`` of the measured threads on; with fewer its
        time is inversely proportional to their number.
        """
        if not threads > 0.0:
            raise CostError(f"the second executor has {threads} threads, expected more than 0")
        return max(1.0, self.saturation * self.suffix_threads / threads)

    def crossing(self, blocks: int) -> int:
        """Bytes that cross a cut after the first ``blocks`` blocks; none where one side has all."""
        return 0 if self._uncut(blocks) else self.blocks[blocks - 1].boundary_bytes

    def transfer(self, blocks: int) -> float:
        """Seconds to hand over there."""
        return 0.0 if self._uncut(blocks) else self.transfer_s + self.crossing(blocks) / self.transfer_rate

    def _uncut(self, blocks: int) -> bool:
        return blocks in (0, len(self.blocks))


def _check_block(block: BlockCost) -> None:
    for field in fields(BlockCost)[1:]:
        value = getattr(block, field.name)
        _not_negative(f"{field.name} of block '{block.name}'", value)
    if math.isinf(block.prefix_s) and math.isinf(block.suffix_s):
        raise CostError(f"block '{block.name}' runs on neither side")


def _not_negative(name: str, value: float) -> None:
    if not value >= 0.0:
        raise CostError(f"{name} is {value}, expected 0 or more")


def write_costs(costs: StageCosts, path: Path) -> None:
    """Write ``costs`` to a JSON file that :func:`read_costs` reads."""
    content = {"format": FORMAT, **asdict(costs)}
    for block in content["blocks"]:
        for name in ("prefix_s", "suffix_s"):
            block[name] = None if math.isinf(block[name]) else block[name]
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_costs(path: Path) -> StageCosts:
    """Read the file of :func:`write_costs`; null stands for a side where a block cannot run.

    Raises CostError, naming the file and the field.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CostError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CostError(f"{path}: is no JSON: {error}") from None
    try:
        return _from_json(content)
    except CostError as error:
        raise CostError(f"{path}: {error}") from None


def _from_json(content: Any) -> StageCosts:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CostError(f"expected an object with 'format': {FORMAT}")
    blocks = content.get("blocks")
    if not isinstance(blocks, list):
        raise CostError("'blocks' is missing or no list")
    rest = {name: value for name, value in content.items() if name not in ("format", "blocks")}
    made = tuple(_record(BlockCost, _finite(block), f"blocks[{i}]") for i, block in enumerate(blocks))
    costs: StageCosts = _record(StageCosts, {**rest, "blocks": made}, "the costs")
    return costs


def _finite(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    times = ("prefix_s", "suffix_s")
    return {k: math.inf if k in times and v is None else v for k, v in block.items()}


def _record(kind: type[Any], values: Any, where: str) -> Any:
    """A dataclass of JSON values, which must be of the declared kinds."""
    if not isinstance(values, Mapping):
        raise CostError(f"{where}: expected an object")
    kinds = {field.name: str(field.type) for field in fields(kind)}
    for name, value in values.items():
        if name not in kinds:
            raise CostError(f"{where}: '{name}' is unknown, expected: {', '.join(kinds)}")
        if not _fits(value, kinds[name]):
            raise CostError(f"{where}: '{name}' is {value!r}, expected {kinds[name]}")
    missing = [f.name for f in fields(kind) if f.default is MISSING and f.name not in values]
    if missing:
        raise CostError(f"{where}: '{missing[0]}' is missing")
    return kind(**values)


def _fits(value: Any, kind: str) -> bool:
    if kind == "str":
        return isinstance(value, str)
    if kind in ("int", "float"):
        accepted = (int,) if kind == "int" else (int, float)
        if not isinstance(value, accepted) or isinstance(value, bool):
            return False
        return isinstance(value, float) or abs(value) <= _LARGEST
    return isinstance(value, Sequence)
