"""Low-rank adapters: several networks that share weights, each with a small change of its own.

The change is added when the checkpoint loads, so a layer costs the same with and without.
"""

from __future__ import annotations

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Tensor
from vla_simd_ros.policies.weights import TensorSource, Weights

_MATRIX = ".weight"


class AdaptedWeights(Weights):
    """The weights ``shared``, of which every matrix [outputs, inputs] called one of ``modules`` has a change
    of rank ``rank`` added: ``scale`` times ``<adapter><module>.up.weight`` [outputs, rank] times
    ``<adapter><module>.down.weight`` [rank, inputs]."""

    def __init__(
        self,
        source: TensorSource,
        shared: Weights,
        adapter: str,
        modules: tuple[str, ...],
        rank: int,
        scale: float,
    ) -> None:
        super().__init__(source, shared.prefix)
        self._shared = shared
        self._adapter = Weights(source, adapter)
        self._scale_name = f"{adapter}scale"
        self._modules = modules
        self._rank = rank
        self._scale = scale

    def constant(self, b: Builder, name: str, *shape: int) -> Tensor:
        plain = self._shared.constant(b, name, *shape)
        module = name.removesuffix(_MATRIX)
        if not name.endswith(_MATRIX) or module.rpartition(".")[2] not in self._modules:
            return plain
        outputs, inputs = shape
        up = self._adapter.constant(b, f"{module}.up.weight", outputs, self._rank)
        down = self._adapter.constant(b, f"{module}.down.weight", self._rank, inputs)
        change = b.linear(up, b.transpose(down, (1, 0), name=f"{module}.down"), name=f"{module}.change")
        scale = self._adapter.filled(b, self._scale_name, self._scale, 1)
        change = b.binary("mul", change, scale, name=f"{module}.scaled")
        return b.add(plain, change, name=f"{module}.adapted")
