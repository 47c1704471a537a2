"""The C++ engine (cpp_kernels/bindings), as Python sees it."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

class ProgramError(ValueError):
    """An operation that would not be safe to run; names it."""

class RunError(ValueError):
    """A value met at run time, an index, that is out of range; names the operation."""

class Cancelled(RuntimeError):
    """A run that Engine.cancel() stopped."""

def cpu_info() -> dict[str, Any]:
    """model, features, logical_cpus, physical_cores; l1d_bytes, l2_bytes, l3_bytes (0 where unknown)."""

def available_isas() -> list[str]:
    """Instruction sets that can be chosen here, best first."""

def available_int8() -> list[str]:
    """Variants of the INT8 kernels that can be chosen here, best first."""

def default_threads() -> int:
    """Threads that an engine starts when none are asked for."""

def fma_peak(isa: str = "", seconds: float = 0.2) -> float:
    """GFLOP/s of fused multiply-adds on one core."""

class Arena:
    def __init__(self, bytes: int) -> None: ...
    @property
    def bytes(self) -> int: ...
    def array(self, offset: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> NDArray[Any]:
        """A writable view; offset and strides in bytes."""

class Constant:
    def __init__(self, array: NDArray[Any], borrow: bool = False) -> None: ...
    @property
    def bytes(self) -> int: ...

class PackedWeights:
    @property
    def isa(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def winograd_side(self) -> int: ...
    @property
    def rows(self) -> bool: ...
    @property
    def strassen(self) -> bool: ...
    @property
    def bf16(self) -> bool: ...
    @property
    def bytes(self) -> int: ...

class Int8Weights:
    @property
    def isa(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def bytes(self) -> int: ...

class KeyValues:
    @property
    def rows(self) -> int: ...

class BlockWeights:
    @property
    def isa(self) -> str: ...
    @property
    def form(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def bytes(self) -> int: ...

class View:
    def __init__(
        self,
        offset: int,
        rows: int,
        cols: int,
        ld: int,
        dtype: str = "float32",
        constant: Constant | None = None,
    ) -> None: ...

class Engine:
    def __init__(
        self,
        threads: int = 0,
        isa: str = "",
        affinity: Sequence[int] = (),
        spin_us: int = 200,
        schedule: str = "dynamic",
        parallel_cutoff: int = 1024,
        block_rows: int = 0,
        threads_per_branch: int = 0,
        int8: str = "",
    ) -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def int8_isa(self) -> str: ...
    @property
    def int8_tile(self) -> tuple[int, int]: ...
    @property
    def int8_winograd(self) -> bool:
        """Whether the INT8 kernels have Winograd's method."""
    @property
    def affinity(self) -> list[int]: ...
    @property
    def branching(self) -> bool:
        """Whether branches of programs run at the same time."""
    @property
    def tile(self) -> tuple[int, int]: ...
    def strassen_fits(self, n: int, k: int) -> bool:
        """Whether weights [n, k] divide into quarters of whole panels."""

    def pack(
        self,
        weights: NDArray[Any],
        winograd_side: int = 0,
        kernel: int = 3,
        stride: int = 1,
        rows: bool = False,
        strassen: bool = False,
        bf16_where_exact: bool = False,
    ) -> PackedWeights: ...
    def pack_int8(self, weights: NDArray[Any], runs: int = 1, winograd: bool = False) -> Int8Weights:
        """Weights [n, k] of a linear layer, or of a convolution with a run per row of its filter (per place
        where it is dilated); with ``winograd`` 3x3 filters for that method."""

    def key_values(self, rows: int, kv_heads: int, head: int) -> KeyValues:
        """A state of so many tokens, zero."""
    def pack_blocks(self, form: str, blocks: NDArray[Any], k: int) -> BlockWeights:
        """Weights [n, k] in blocks as ggml lays them out, as bytes; form is q8_0, q4_0 or q4_1."""

    def cancel(self) -> None: ...
    def resume(self) -> None: ...
    def read_bandwidth(self, bytes: int, repeats: int = 5) -> float:
        """Bytes per second that all threads together read."""

class Program:
    @property
    def labels(self) -> list[str]: ...
    def run(self) -> None: ...
    def profile(self) -> list[int]:
        """Run, and return the nanoseconds that each operation took."""
    def time(self, runs: int) -> int:
        """Run so often, and return the nanoseconds that it took in all."""

class ProgramBuilder:
    def __init__(self, engine: Engine, arena: Arena) -> None: ...
    def linear(
        self,
        label: str,
        x: View,
        weights: PackedWeights | Int8Weights | BlockWeights,
        y: View,
        bias: View | None = None,
        residual: View | None = None,
        activation: str = "none",
        gamma: View | None = None,
        beta: View | None = None,
    ) -> None: ...
    def conv2d(
        self,
        label: str,
        x: View,
        in_size: Sequence[int],
        weights: PackedWeights | Int8Weights,
        kernel: Sequence[int],
        stride: tuple[int, int],
        padding: tuple[tuple[int, int], tuple[int, int]],
        dilation: int,
        y: View,
        out_size: Sequence[int],
        bias: View | None = None,
        residual: View | None = None,
        activation: str = "none",
        gamma: View | None = None,
        beta: View | None = None,
    ) -> None: ...
    def conv2d_flat(
        self,
        label: str,
        x: View,
        in_size: Sequence[int],
        weights: PackedWeights,
        kernel: Sequence[int],
        stride: tuple[int, int],
        padding: tuple[tuple[int, int], tuple[int, int]],
        dilation: int,
        y: View,
        out_size: Sequence[int],
        bias: View | None = None,
        residual: View | None = None,
        activation: str = "none",
        gamma: View | None = None,
        beta: View | None = None,
    ) -> None: ...
    def max_pool2d(
        self,
        label: str,
        x: View,
        in_size: Sequence[int],
        kernel: int,
        stride: int,
        padding: int,
        y: View,
        out_size: Sequence[int],
    ) -> None: ...
    def attention(
        self,
        label: str,
        q: View,
        k: View,
        v: View,
        y: View,
        heads: int,
        kv_heads: int,
        scale: float,
        bias: View | None = None,
        materialized: bool = False,
    ) -> None: ...
    def layer_norm(self, label: str, x: View, weight: View, bias: View, eps: float, y: View) -> None: ...
    def rms_norm(self, label: str, x: View, weight: View, eps: float, y: View) -> None: ...
    def group_norm(
        self,
        label: str,
        x: View,
        weight: View,
        bias: View,
        groups: int,
        eps: float,
        activation: str,
        y: View,
    ) -> None: ...
    def softmax(self, label: str, x: View, y: View) -> None: ...
    def rotary(
        self, label: str, x: View, cos: View, sin: View, heads: int, y: View, interleaved: bool = False
    ) -> None: ...
    def transpose(self, label: str, x: View, shape: Sequence[int], axes: Sequence[int], y: View) -> None: ...
    def resize(
        self, label: str, x: View, in_size: Sequence[int], y: View, out_size: Sequence[int]
    ) -> None: ...
    def resample(
        self,
        label: str,
        x: View,
        in_size: Sequence[int],
        axis: int,
        first: View,
        weights: View,
        y: View,
    ) -> None: ...
    def copy(self, label: str, x: View, y: View) -> None: ...
    def binary(self, label: str, op: str, a: View, b: View, y: View) -> None: ...
    def pointwise(
        self,
        label: str,
        x: View,
        y: View,
        activation: str = "none",
        gamma: View | None = None,
        beta: View | None = None,
    ) -> None: ...
    def mean_rows(self, label: str, x: View, y: View) -> None: ...
    def lookup_u8(self, label: str, x: View, table: View, y: View) -> None: ...
    def embedding(self, label: str, table: View | BlockWeights, ids: View, y: View) -> None: ...
    def append(self, label: str, state: KeyValues, k: View, v: View, positions: View) -> None: ...
    def cached_attention(
        self, label: str, q: View, state: KeyValues, positions: View, y: View, heads: int, scale: float
    ) -> None: ...
    def set_branch(self, branch: int) -> None: ...
    def build(self) -> Program: ...
