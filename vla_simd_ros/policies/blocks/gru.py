"""A gated recurrent unit with the same input at every step, as PyTorch stores and computes it."""

from __future__ import annotations

from collections.abc import Iterator

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Tensor
from vla_simd_ros.policies.weights import Weights

_GATES = ("reset", "update", "new")


class Gru:
    """The unit named ``module`` among ``weights``: inputs have ``inputs`` columns and states ``width``."""

    def __init__(self, weights: Weights, module: str, inputs: int, width: int) -> None:
        self._weights = weights
        self._module = module
        self._inputs = inputs
        self.width = width
        """Columns of a state."""

    def states(self, b: Builder, x: Tensor, state: Tensor, count: int) -> Iterator[Tensor]:
        """``count`` states [1, width] from the input ``x`` [1, inputs] and the ``state`` before them."""
        given = self._gates(b, x, "ih", self._inputs, "gru.given")
        ones = self._weights.filled(b, "gru.ones", 1.0, 1, self.width)
        for index in range(count):
            name = f"gru.{index}"
            kept = self._gates(b, state, "hh", self.width, name)
            reset, update = (
                b.activation(
                    "sigmoid", b.add(given[i], kept[i], name=f"{name}.{gate}.sum"), name=f"{name}.{gate}.open"
                )
                for i, gate in enumerate(_GATES[:2])
            )
            remembered = b.binary("mul", kept[2], reset, name=f"{name}.remembered")
            new = b.activation("tanh", b.add(given[2], remembered, name=f"{name}.sum"), name=f"{name}.tanh")
            rest = b.binary("sub", ones, update, name=f"{name}.rest")
            state = b.add(
                b.binary("mul", new, rest, name=f"{name}.share"),
                b.binary("mul", state, update, name=f"{name}.stays"),
                name=f"{name}.state",
            )
            yield state

    def _gates(self, b: Builder, x: Tensor, part: str, inputs: int, name: str) -> list[Tensor]:
        """What an input or a state adds to each gate."""
        outputs = len(_GATES) * self.width
        weight = self._weights.constant(b, f"{self._module}.weight_{part}", outputs, inputs)
        bias = self._weights.constant(b, f"{self._module}.bias_{part}", outputs)
        y = b.linear(x, weight, bias, name=name)
        return [
            b.slice(y, axis=1, start=i * self.width, stop=(i + 1) * self.width, name=f"{name}.{gate}")
            for i, gate in enumerate(_GATES)
        ]
