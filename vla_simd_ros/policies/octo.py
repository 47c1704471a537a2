"""Octo: a transformer over an instruction and a window of observations, and a small diffusion head.

As in the original, images come with a goal image beside them, which is black where an instruction says what
to do, and the instruction's tokens are as many as its longest may have: the network reads the padding too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.features import Feature
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Tensor
from vla_simd_ros.policies.base import PolicySpec, Solver
from vla_simd_ros.policies.blocks.conv_stem import conv_stem
from vla_simd_ros.policies.blocks.modules import linear
from vla_simd_ros.policies.blocks.normalization import normalized_image
from vla_simd_ros.policies.blocks.t5 import embedding_name, read_t5_config, t5_encoder
from vla_simd_ros.policies.octo_config import read_octo_config
from vla_simd_ros.policies.octo_head import DiffusionHead
from vla_simd_ros.policies.octo_transformer import BlockTransformer, Layout
from vla_simd_ros.policies.weights import Weights

_TEXT_MODEL = "model.text.model."


class OctoPolicy:
    """Octo with its text encoder. Raises CheckpointError for what does not fit."""

    action_tokens = None

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._config = read_octo_config(checkpoint)
        self._weights = Weights(checkpoint.weights, "model.")
        self._stems = {
            camera: Weights(checkpoint.weights, f"model.observation.{feature.camera}.stem.")
            for camera, feature in self._config.cameras.items()
        }
        self._normalizers = checkpoint.normalizers
        self._transformer = BlockTransformer(self._config, Weights(checkpoint.weights, "model.transformer."))
        self._head = DiffusionHead(
            self._config,
            Weights(checkpoint.weights, "model.head."),
            checkpoint.unnormalizers[self._config.action.name],
        )
        names = {n[len(_TEXT_MODEL) :]: None for n in checkpoint.tensors if n.startswith(_TEXT_MODEL)}
        self._text_weights = Weights(checkpoint.weights, _TEXT_MODEL)
        self._text_config = read_t5_config(
            self._text_weights, names, checkpoint.option("text_config", dict, {})
        )
        self._embedding = embedding_name(names)

    @property
    def spec(self) -> PolicySpec:
        """Cameras, widths, chunk size, the longest instruction, and the window of observations."""
        return self._config.spec

    @property
    def solver(self) -> Solver:
        """The denoising steps."""
        return self._head.solver

    def check_stored(self) -> None:
        """The text encoder's word embeddings may be used where they are stored."""
        self._text_weights.check_mapped()

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        """The graph for an instruction of ``tokens`` tokens, 1 to ``spec.max_instruction_tokens``."""
        most = self._config.max_tokens
        if tokens is None or not 1 <= tokens <= most:
            raise GraphError(f"octo: got an instruction of {tokens} tokens, expected 1 to {most}")
        b = Builder()
        ids = b.input("token_ids", (tokens,), DType.I32, Lifetime.EPISODE)
        states = t5_encoder(
            b, ids, self._text_config, self._text_weights, self._embedding, padded=self._config.max_tokens
        )
        task = self._task(b, states)
        images = [self._images(b, step) for step in range(self._config.window)]
        layout = Layout(
            task=task.shape[0],
            window=self._config.window,
            images=images[0].shape[0],
            told=task.shape[0] if self._config.repeat_task else 0,
            readouts=self._config.readouts,
            correct_attention=self._config.correct_attention,
        )
        mask = self._mask(b)
        readouts = self._transformer.read(b, task, self._window(b, task, images), layout, mask)
        self._head.build(b, readouts)
        return b.graph()

    def _task(self, b: Builder, states: Tensor) -> Tensor:
        """The instruction's rows."""
        rows, width = self._config.max_tokens, self._config.width
        with b.block("task"):
            x = linear(b, states, self._weights, "task.language.projection", width, name="projected")
            return b.add(x, self._weights.constant(b, "task.language.positions", rows, width), name="tokens")

    def _images(self, b: Builder, step: int) -> Tensor:
        """The rows of all cameras' images of one observation."""
        parts = [self._image(b, camera, step) for camera in self._config.cameras]
        with b.block("tokens"):
            return b.concat(parts, axis=0, name=f"images.{step}")

    def _image(self, b: Builder, camera: str, step: int) -> Tensor:
        feature = self._config.cameras[camera]
        name = f"image.{camera}" if self._config.window == 1 else f"image.{camera}.{step}"
        module = f"observation.{feature.camera}"
        with b.block("preprocess"):
            images = self._normalized(b, feature, name)
        with b.block(f"stem.{camera}.{step}"):
            patches = conv_stem(b, images, self._config.stem, self._stems[camera])
        with b.block("tokens"):
            x = linear(
                b,
                patches,
                self._weights,
                f"{module}.projection",
                self._config.width,
                name=f"{camera}.{step}.projected",
            )
            positions = self._positions(b, f"{module}.positions", patches.shape[0], step)
            return b.add(x, positions, name=f"{camera}.{step}")

    def _normalized(self, b: Builder, feature: Feature, name: str) -> list[Tensor]:
        """The image, and a black goal beside it where the network was trained to see one."""
        channels, height, width = feature.shape
        normalizer = self._normalizers[feature.name]
        image = b.input(name, (height, width, channels), DType.U8, Lifetime.QUERY)
        images = [normalized_image(b, image, normalizer, name=name)]
        if self._config.sees_goal:
            size = (height, width, channels)
            black = self._weights.made(("goal", size), lambda: np.zeros(size, np.uint8))
            goal = b.constant(f"goal.{height}x{width}", black)
            images.append(normalized_image(b, goal, normalizer, name=f"{name}.goal"))
        return images

    def _window(self, b: Builder, task: Tensor, images: Sequence[Tensor]) -> Tensor:
        """The rows of all observations, one after the other."""
        parts = []
        with b.block("tokens"):
            for step, rows in enumerate(images):
                readouts = self._positions(b, "readout.action.positions", self._config.readouts, step)
                parts += [rows, task, readouts] if self._config.repeat_task else [rows, readouts]
            return b.concat(parts, axis=0, name="window")

    def _positions(self, b: Builder, name: str, rows: int, step: int) -> Tensor:
        """The positions of one observation's rows [rows, width], stored for all steps of the horizon."""
        width = self._config.width
        stored = self._weights.constant(b, name, self._config.horizon, rows, width)
        part = b.slice(stored, axis=0, start=step, stop=step + 1, name=f"{name}.{step}")
        return b.reshape(part, (rows, width), name=f"{name}.{step}.rows")

    def _mask(self, b: Builder) -> Tensor | None:
        """Which observations there were, where there are several."""
        if not self._config.spec.takes_observation_mask:
            return None
        return b.input("observation_mask", (self._config.window, 1), DType.F32, Lifetime.QUERY)
