"""The window that a convolution moves over an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from vla_simd_ros.graph.errors import GraphError

Pair = tuple[int, int]
Stride = int | Pair
Padding = int | tuple[Pair, Pair]


def conv_output(size: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    """Length of one side of a convolution's or pooling's result."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


class Window(NamedTuple):
    """Steps down and to the right, padding (top, bottom) and (left, right), and the distance of taps."""

    stride: Pair
    padding: tuple[Pair, Pair]
    dilation: int

    @classmethod
    def of(cls, attrs: Mapping[str, Any]) -> Window:
        """The window that the attributes of a convolution describe."""
        stride, padding = attrs["stride"], attrs["padding"]
        if isinstance(stride, int):
            stride = (stride, stride)
        if isinstance(padding, int):
            padding = ((padding, padding), (padding, padding))
        return cls(stride, padding, attrs["dilation"])

    def out_size(self, size: Pair, kernel: Pair) -> Pair:
        """Height and width of the result for an image and a kernel of these sizes."""
        height, width = (
            conv_output(
                size[axis] + sum(self.padding[axis]), kernel[axis], self.stride[axis], 0, self.dilation
            )
            for axis in range(2)
        )
        return height, width

    @property
    def square(self) -> tuple[int, int] | None:
        """The stride and the padding where they are the same on all sides, None where they differ."""
        (vertical, horizontal), ((top, bottom), (left, right)) = self.stride, self.padding
        alike = vertical == horizontal and top == bottom == left == right
        return (vertical, top) if alike else None


def window_attrs(stride: Stride, padding: Padding, dilation: int) -> dict[str, Any]:
    """The attributes of a convolution: one number where both axes, and all sides, have the same. Raises
    GraphError for what is neither a number nor a pair (of pairs), or out of range."""
    whole_stride = stride if isinstance(stride, int) else _pair("stride", stride, "(down, right)")
    if isinstance(padding, int):
        whole_padding: Padding = padding
    else:
        sides = "((top, bottom), (left, right))"
        vertical, horizontal = _two("padding", padding, sides)
        whole_padding = (_pair("padding", vertical, sides), _pair("padding", horizontal, sides))
    window = Window.of({"stride": whole_stride, "padding": whole_padding, "dilation": dilation})
    if min(window.stride) < 1 or dilation < 1 or min(min(sides) for sides in window.padding) < 0:
        raise GraphError(
            f"stride {stride}, padding {padding}, dilation {dilation}; "
            "expected a stride and a dilation of at least 1 and padding of at least 0"
        )
    same_stride = window.stride[0] if window.stride[0] == window.stride[1] else window.stride
    same_padding = (
        window.padding[0][0] if len({*window.padding[0], *window.padding[1]}) == 1 else window.padding
    )
    return {"stride": same_stride, "padding": same_padding, "dilation": dilation}


def _two(name: str, value: Any, expected: str) -> tuple[Any, Any]:
    try:
        first, second = value
    except (TypeError, ValueError):
        raise GraphError(f"{name} {value!r}; expected a number or {expected}") from None
    return first, second


def _pair(name: str, value: Any, expected: str) -> Pair:
    first, second = _two(name, value, expected)
    if not (isinstance(first, int) and isinstance(second, int)):
        raise GraphError(f"{name} {value!r}; expected a number or {expected}")
    return first, second
