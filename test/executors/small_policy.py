"""A small graph with every operation that programs are made of, in all lifetimes."""

from __future__ import annotations

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime, Tensor
from vla_simd_ros.graph.passes.quantize import with_int8_layers
from vla_simd_ros.graph.programs import CompiledPolicy

RNG = np.random.default_rng(0)
IDS = np.array([3, 1, 7], np.int32)
IMAGE = RNG.integers(0, 256, (9, 11, 3), dtype=np.uint8)
STATE, NOISE = RNG.normal(size=(1, 4)).astype(np.float32), RNG.normal(size=(2, 8)).astype(np.float32)
INPUTS: dict[Lifetime, dict[str, Array]] = {
    Lifetime.EPISODE: {"ids": IDS},
    Lifetime.QUERY: {"image": IMAGE, "state": STATE},
    Lifetime.STEP: {"noise": NOISE},
}


class _Maker:
    def __init__(self) -> None:
        self.b = Builder()
        self.rng = np.random.default_rng(1)
        self.count = 0

    def c(self, *shape: int) -> Tensor:
        self.count += 1
        return self.b.constant(f"c{self.count}", self.rng.normal(size=shape).astype(np.float32))

    def text(self) -> Tensor:
        b = self.b
        ids = b.input("ids", IDS.shape, DType.I32, Lifetime.EPISODE)
        x = b.embedding(self.c(10, 8), ids, name="embedded")
        y = b.rms_norm(x, self.c(8), eps=1e-6, name="rms")
        q, k, v = (b.linear(y, self.c(8, 8), name=f"text.{n}") for n in "qkv")
        y = b.attention(q, k, v, self.c(2, 3, 3), heads=2, scale=1.0, name="text.attention")
        return b.add(x, y, name="text")

    def pixels(self, gamma: Tensor) -> Tensor:
        b = self.b
        image = b.input("image", IMAGE.shape, DType.U8, Lifetime.QUERY)
        x = b.normalize_image(image, self.c(3), self.c(3), name="normalized")
        x = b.conv2d(x, self.c(8, 3, 3, 3), stride=2, padding=1, name="conv1")
        x = b.activation("relu", x, name="relu1")
        x = b.max_pool2d(x, kernel=3, stride=2, padding=1, name="pool")
        y = b.conv2d(x, self.c(8, 3, 3, 8), padding=2, dilation=2, name="conv2")
        y = b.activation("relu", b.add(y, x, name="sum"), name="relu2")
        y = b.film(b.film(y, gamma, self.c(8), name="film"), self.c(8), gamma, name="film2")
        y = b.binary("div", b.binary("sub", y, self.c(8), name="minus"), self.c(8), name="over")
        return b.reshape(y, (y.shape[0] * y.shape[1], 8), name="pixels")

    def graph(self) -> Graph:
        b = self.b
        text = self.text()
        pixels = self.pixels(b.linear(b.mean_rows(text, name="mean"), self.c(8, 8), self.c(8), name="gamma"))
        state = b.linear(
            b.input("state", (1, 4), DType.F32, Lifetime.QUERY), self.c(8, 4), self.c(8), name="state2"
        )
        tokens = b.concat([state, pixels, text], axis=0, name="tokens")
        positioned = b.add(tokens, self.c(*tokens.shape), name="positioned")
        q, k = (b.linear(positioned, self.c(8, 8), self.c(8), name=n) for n in "qk")
        v = b.linear(tokens, self.c(8, 8), name="v")
        y = b.attention(q, k, v, heads=4, scale=0.5, name="attention")
        y = b.layer_norm(b.add(tokens, y, name="skip"), self.c(8), self.c(8), eps=1e-5, name="norm")
        for fn in ("gelu", "gelu_tanh", "silu", "tanh"):
            y = b.activation(fn, y, name=fn)
        b.output("prefix", y)
        noise = b.input("noise", NOISE.shape, DType.F32, Lifetime.STEP)
        k, v = (b.linear(y, self.c(4, 8), name=f"step.{n}") for n in "kv")
        z = b.attention(noise, k, v, heads=4, kv_heads=2, scale=0.7, name="grouped")
        b.output("action", b.concat([z, b.binary("mul", z, noise, name="gated")], axis=1, name="action"))
        return b.graph()


def small_graph() -> Graph:
    """The graph as written; :data:`INPUTS` are values for its inputs."""
    return _Maker().graph()


def small_policy() -> CompiledPolicy:
    """The graph compiled."""
    return compile_graph(small_graph(), FoldCache())


def int8_policy() -> CompiledPolicy:
    """The same with every layer of constant weights in int8, of the text encoder too and however small."""
    policy = small_policy()
    ops = [op for program in policy.programs.values() for op in program.ops]
    layers = {op.output for op in ops if op.kind in ("linear", "conv2d")}
    return with_int8_layers(policy, layers)
