"""The layers behind IMPACT's encoder in plain numpy and float64: everything anew for every token."""

from __future__ import annotations

from typing import Any

import numpy as np

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.graph.ir import Array

_PREFIX = "model.tokens."


class TokenReference:
    """Scores and greedy tokens behind the encoder's output."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._config: dict[str, Any] = checkpoint.config
        self._weights = checkpoint.weights

    def scores(self, encoded: Array, tokens: list[int]) -> Array:
        """Of what follows the first token and each of ``tokens``."""
        config = self._config
        prefix = encoded @ self._array("prefix_proj.weight").T + self._array("prefix_proj.bias")
        ids = [config["action_bins"], *tokens]
        x = np.concatenate([prefix, self._array("embed_tokens.weight")[ids]])
        for layer in range(config["n_token_layers"]):
            x = self._layer(x, f"layers.{layer}.")
        return self._norm(x, "norm.weight")[len(prefix) :] @ self._array("lm_head.weight").T

    def greedy(self, encoded: Array, count: int) -> list[int]:
        tokens: list[int] = []
        while len(tokens) < count:
            tokens.append(int(self.scores(encoded, tokens)[-1].argmax()))
        return tokens

    def _layer(self, x: Array, name: str) -> Array:
        config = self._config
        heads, kv_heads = config["token_heads"], config["token_kv_heads"]
        head = config["token_width"] // heads
        y = self._norm(x, f"{name}input_layernorm.weight")
        q, k, v = (
            (y @ self._array(f"{name}self_attn.{part}_proj.weight").T).reshape(len(x), -1, head)
            for part in "qkv"
        )
        q, k = self._turned(q), self._turned(k)
        attended = np.zeros((len(x), heads, head))
        for index in range(heads):
            of = index // (heads // kv_heads)
            for row in range(len(x)):
                weights = k[: row + 1, of] @ q[row, index] / np.sqrt(head)
                weights = np.exp(weights - weights.max())
                attended[row, index] = weights / weights.sum() @ v[: row + 1, of]
        x = x + attended.reshape(len(x), -1) @ self._array(f"{name}self_attn.o_proj.weight").T
        y = self._norm(x, f"{name}post_attention_layernorm.weight")
        gate = y @ self._array(f"{name}mlp.gate_proj.weight").T
        up = y @ self._array(f"{name}mlp.up_proj.weight").T
        return x + (gate / (1 + np.exp(-gate)) * up) @ self._array(f"{name}mlp.down_proj.weight").T

    def _turned(self, x: Array) -> Array:
        """Pairs of a column of the first half of each head and the same of the second, as complex numbers."""
        half = x.shape[2] // 2
        speed = self._config["rope_theta"] ** (-np.arange(half) / half)
        turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * np.outer(np.arange(len(x)), speed))[
            :, None
        ]
        return np.concatenate([turned.real, turned.imag], axis=2)

    def _norm(self, x: Array, name: str) -> Array:
        mean = np.square(x).mean(axis=1, keepdims=True)
        return x / np.sqrt(mean + self._config["rms_norm_eps"]) * self._array(name)

    def _array(self, name: str) -> Array:
        return self._weights.tensor(_PREFIX + name).astype(np.float64)
