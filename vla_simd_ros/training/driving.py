"""The driving planners MindDrive and ORION in PyTorch: views as grids, one sequence of tokens, adapters
beside the layers that they change.

Nothing is shared with the graph that the engine runs. Weights are taken from the folder by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from vla_simd_ros.checkpoints import Checkpoint

_NORM_EPS = 1e-5


class DrivingPredictor:
    """Raw observations in, poses in the map out, all arithmetic in ``dtype``."""

    def __init__(self, checkpoint: Checkpoint, instruction: str, dtype: torch.dtype = torch.float32) -> None:
        self._checkpoint = checkpoint
        self._config = checkpoint.config
        self._dtype = dtype
        self._w = {
            name.removeprefix("model."): torch.from_numpy(np.array(v)).to(dtype)
            for name, v in checkpoint.tensors.items()
        }
        ids = checkpoint.tokenizer().encode(instruction)
        self._words = self._w["text.embed_tokens.weight"][torch.tensor(ids)]

    @torch.inference_mode()
    def predict(
        self, images: Mapping[str, npt.NDArray[np.uint8]], state: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        """Actions ``[chunk, 4]`` for images ``[H, W, 3]`` by camera and a state ``[8]``."""
        given = torch.from_numpy(np.asarray(state, np.float32)).to(self._dtype)
        normalized = (given - self._of("observation.state", "offset")) / self._of(
            "observation.state", "divisor"
        )
        ego = self._linear("ego_proj", normalized[None, 5:])
        memory, positions = self._scene(images)
        heads = ("detection", "map") if self._config["type"] == "minddrive" else ("scene_queries",)
        scene = torch.cat([ego, *(self._asked(name, memory, positions) for name in heads)])
        plan = self._minddrive(scene) if self._config["type"] == "minddrive" else self._orion(scene)
        (unnormalizer,) = self._checkpoint.unnormalizers.values()
        scale, offset = (torch.from_numpy(v.copy()).to(self._dtype) for v in unnormalizer.affine())
        ahead, left, turn, velocity = (plan * scale + offset).T
        x, y, yaw, cos, sin = given[:5]
        placed = torch.stack(
            (x + cos * ahead - sin * left, y + sin * ahead + cos * left, yaw + turn, velocity), dim=1
        )
        actions: npt.NDArray[Any] = placed.numpy()
        return actions

    def _of(self, feature: str, part: str) -> Tensor:
        """A vector of a feature's normalization."""
        return torch.from_numpy(np.array(getattr(self._checkpoint.normalizers[feature], part))).to(
            self._dtype
        )

    def _scene(self, images: Mapping[str, npt.NDArray[np.uint8]]) -> tuple[Tensor, Tensor]:
        """The patches of all views, [views * patches, width], and where they are seen."""
        features = []
        for name, feature in self._checkpoint.cameras.items():
            pixels = torch.from_numpy(np.array(images[name])).to(self._dtype) / 255
            pixels = (pixels - self._of(feature.name, "offset")) / self._of(feature.name, "divisor")
            features.append(self._tower(pixels.permute(2, 0, 1)[None])[0].flatten(0, 1))
        return self._linear("image_proj", torch.cat(features)), self._w["camera_positions"]

    def _tower(self, pixels: Tensor) -> Tensor:
        """A grid [1, rows, columns, width] of patches of a view."""
        config = self._config["vision_config"]
        patch, window = config["patch_size"], config["window_size"]
        x = functional.conv2d(
            pixels, self._w["vision.patch_embed.weight"], self._w["vision.patch_embed.bias"], stride=patch
        ).permute(0, 2, 3, 1)
        _, rows, columns, width = x.shape
        x = x + self._w["vision.pos_embed"].reshape(1, rows, columns, width)
        for index in range(config["num_hidden_layers"]):
            name = f"vision.layers.{index}"
            y = self._layer_norm(f"{name}.norm1", x, config["layer_norm_eps"])
            if index % config["global_every"] == config["global_every"] - 1:
                x = x + self._vision_attention(f"{name}.attn", y, window / max(rows, columns))
            else:
                attended = torch.zeros_like(y)
                for top in range(0, rows, window):
                    for left in range(0, columns, window):
                        place = (slice(None), slice(top, top + window), slice(left, left + window))
                        attended[place] = self._vision_attention(f"{name}.attn", y[place], 1.0)
                x = x + attended
            y = self._layer_norm(f"{name}.norm2", x, config["layer_norm_eps"])
            gate = functional.silu(self._linear(f"{name}.mlp.w1", y)) * self._linear(f"{name}.mlp.w2", y)
            gate = self._layer_norm(f"{name}.mlp.ffn_ln", gate, config["layer_norm_eps"])
            x = x + self._linear(f"{name}.mlp.w3", gate)
        return self._layer_norm("vision.norm", x, config["layer_norm_eps"])

    def _vision_attention(self, name: str, x: Tensor, spacing: float) -> Tensor:
        """Attention over a grid whose neighbours are ``spacing`` apart."""
        _, rows, columns, width = x.shape
        heads = self._config["vision_config"]["num_attention_heads"]
        half = width // heads // 2
        frequency = self._config["vision_config"]["rope_theta"] ** (
            -torch.arange(0, half, 2, dtype=torch.float64) / half
        )
        down = torch.arange(rows, dtype=torch.float64) * spacing
        right = torch.arange(columns, dtype=torch.float64) * spacing
        grid = torch.meshgrid(down, right, indexing="ij")
        angles = torch.cat([axis.reshape(-1, 1) * frequency for axis in grid], dim=1)
        flat = x.reshape(rows * columns, width)
        q = self._turned(self._heads(self._linear(f"{name}.q_proj", flat), heads), angles)
        k = self._turned(self._heads(flat @ self._w[f"{name}.k_proj.weight"].T, heads), angles)
        v = self._heads(self._linear(f"{name}.v_proj", flat), heads)
        y = _attend(q, k, v, None).transpose(0, 1).reshape(1, rows, columns, width)
        return self._linear(f"{name}.proj", y)

    def _asked(self, name: str, memory: Tensor, positions: Tensor) -> Tensor:
        """A head's answers, projected to the text's width."""
        config, queries = self._config["query_config"], self._w[f"{name}.queries"]
        x = torch.zeros_like(queries)
        for index in range(config["num_hidden_layers"]):
            layer = f"{name}.decoder.layers.{index}"
            y = self._query_attention(f"{layer}.self_attn", x + queries, x + queries, x)
            x = self._layer_norm(f"{layer}.norm1", x + y)
            y = self._query_attention(f"{layer}.multihead_attn", x + queries, memory + positions, memory)
            x = self._layer_norm(f"{layer}.norm2", x + y)
            y = self._linear(f"{layer}.linear2", functional.relu(self._linear(f"{layer}.linear1", x)))
            x = self._layer_norm(f"{layer}.norm3", x + y)
        return self._linear(f"{name}.proj", self._layer_norm(f"{name}.decoder.norm", x))

    def _query_attention(self, name: str, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        heads, width = self._config["query_config"]["num_attention_heads"], query.shape[1]
        y, _ = functional.multi_head_attention_forward(
            query[:, None],
            key[:, None],
            value[:, None],
            width,
            heads,
            self._w[f"{name}.in_proj_weight"],
            self._w[f"{name}.in_proj_bias"],
            None,
            None,
            False,
            0.0,
            self._w[f"{name}.out_proj.weight"],
            self._w[f"{name}.out_proj.bias"],
            training=False,
            need_weights=False,
        )
        return y[:, 0]

    def _minddrive(self, scene: Tensor) -> Tensor:
        decision = self._language(torch.cat([scene, self._w["tokens.decision"]]), "decision")[-1:]
        likely = (decision @ self._w["decision_head.weight"].T).softmax(dim=-1)
        decided = likely @ self._w["decisions.weight"]
        rows = torch.cat([scene, decided, self._w["tokens.speed"], self._w["tokens.path"]])
        *_, speed, path = self._language(rows, "action").split(1)
        columns = [
            self._linear(
                f"planner.{name}.linear2", functional.gelu(self._linear(f"planner.{name}.linear1", row))
            ).reshape(self._config["chunk_size"], -1)
            for name, row in (("path", path), ("speed", speed))
        ]
        return torch.cat(columns, dim=1)

    def _orion(self, scene: Tensor) -> Tensor:
        row = self._language(torch.cat([scene, self._w["tokens.planning"]]), None)[-1:]
        latent, state = self._linear("planner.mean", row), self._linear("planner.start", row)
        weights = [self._w[f"planner.gru.{n}"] for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        steps = []
        for _ in range(self._config["chunk_size"]):
            state = torch.gru_cell(latent, state, *weights)
            steps.append(self._linear("planner.step", state))
        return torch.cat(steps).cumsum(dim=0)

    def _language(self, observed: Tensor, expert: str | None) -> Tensor:
        """The rows of instruction and observation after all layers, under an expert's adapter."""
        config = self._config["text_config"]
        x = torch.cat([self._words, observed])
        hidden = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        heads, shared = config["num_attention_heads"], config["num_key_value_heads"]
        angles = _angles(len(x), config["hidden_size"] // heads, config["rope_theta"])
        for index in range(config["num_hidden_layers"]):
            project = self._projection(f"layers.{index}", expert)
            y = self._rms_norm(f"text.layers.{index}.input_layernorm", x)
            q = self._turned(self._heads(project("self_attn.q_proj", y), heads), angles)
            k = self._turned(self._heads(project("self_attn.k_proj", y), shared), angles)
            v = self._heads(project("self_attn.v_proj", y), shared)
            k, v = (t.repeat_interleave(heads // shared, dim=0) for t in (k, v))
            y = _attend(q, k, v, hidden).transpose(0, 1).flatten(1)
            x = x + project("self_attn.o_proj", y)
            y = self._rms_norm(f"text.layers.{index}.post_attention_layernorm", x)
            gated = functional.silu(project("mlp.gate_proj", y)) * project("mlp.up_proj", y)
            x = x + project("mlp.down_proj", gated)
        return self._rms_norm("text.norm", x)

    def _projection(self, layer: str, expert: str | None) -> Callable[[str, Tensor], Tensor]:
        def project(module: str, x: Tensor) -> Tensor:
            name = f"{layer}.{module}"
            y = functional.linear(x, self._w[f"text.{name}.weight"], self._w.get(f"text.{name}.bias"))
            if expert is None:
                return y
            adapter = f"adapters.{expert}.{name}"
            scale = self._config["adapter_alpha"] / self._config["adapter_rank"]
            change = x @ self._w[f"{adapter}.down.weight"].T @ self._w[f"{adapter}.up.weight"].T
            return y + scale * change

        return project

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.reshape(len(x), heads, -1).transpose(0, 1)

    def _turned(self, x: Tensor, angles: Tensor) -> Tensor:
        """Heads [heads, n, d] turned as complex numbers, by tables rounded to float32 as where models run."""
        turn = torch.complex(*(t.to(torch.float32).to(self._dtype) for t in (angles.cos(), angles.sin())))
        real, imaginary = x.chunk(2, dim=-1)
        turned = torch.complex(real.contiguous(), imaginary.contiguous()) * turn
        return torch.cat([turned.real, turned.imag], dim=-1)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self._w[f"{name}.weight"], self._w[f"{name}.bias"])

    def _layer_norm(self, name: str, x: Tensor, eps: float = _NORM_EPS) -> Tensor:
        weight, bias = self._w[f"{name}.weight"], self._w[f"{name}.bias"]
        return functional.layer_norm(x, x.shape[-1:], weight, bias, eps=eps)

    def _rms_norm(self, name: str, x: Tensor) -> Tensor:
        eps = self._config["text_config"]["rms_norm_eps"]
        return x * (x.square().mean(dim=-1, keepdim=True) + eps).rsqrt() * self._w[f"{name}.weight"]


def _angles(count: int, head: int, base: float) -> Tensor:
    """[count, head / 2], rounded to float32 step by step."""
    exponent = torch.arange(head // 2, dtype=torch.float32) * np.float32(2.0 / head)
    wavelength = (torch.tensor(base, dtype=torch.float64) ** exponent.double()).float()
    return (torch.arange(count, dtype=torch.float32)[:, None] / wavelength).double()


def _attend(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> Tensor:
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(dim=-1) @ v
