"""ORION: a language model reads the scene into one row for the plan, and a generative planner unrolls it.

The planner's latent has a mean and a deviation in training; a query takes the mean.
"""

from __future__ import annotations

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Graph, Tensor
from vla_simd_ros.policies.blocks import trajectory
from vla_simd_ros.policies.blocks.gru import Gru
from vla_simd_ros.policies.blocks.language_pass import LanguagePass
from vla_simd_ros.policies.blocks.modules import linear
from vla_simd_ros.policies.config_fields import positive
from vla_simd_ros.policies.driving_config import read_driving_config
from vla_simd_ros.policies.driving_scene import DrivingPlanner
from vla_simd_ros.policies.weights import Weights

HEADS = ("scene_queries",)


class OrionPolicy(DrivingPlanner):
    """ORION-like planner with random or trained weights. Raises CheckpointError for what does not fit."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint, read_driving_config(checkpoint, biased=False), HEADS)
        self._language = LanguagePass(
            self._config.text,
            self._config.text_layers,
            Weights(checkpoint.weights, "model.text."),
            "language",
        )
        self._latent = positive(checkpoint, "latent_dim", 32)
        width = positive(checkpoint, "planner_width", 512)
        self._planner = Weights(checkpoint.weights, "model.planner.")
        self._unroll = Gru(self._planner, "gru", self._latent, width)

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        """The graph for an instruction of ``tokens`` tokens, 1 to ``spec.max_instruction_tokens``."""
        b = Builder()
        instruction = self._scene.instruction(b, tokens)
        state, motion = self._scene.state(b)
        observed = self._scene.observed(b, motion)
        with b.block("language.0"):
            asked = b.concat([*observed, self._scene.learned(b, "planning")], axis=0, name="rows")
        planned = self._language.read(b, instruction, asked, 1)
        self._scene.plan(b, self._planned(b, planned), state)
        return b.graph()

    def _planned(self, b: Builder, x: Tensor) -> Tensor:
        """The plan [chunk_size, 4]: each step adds to the one before."""
        with b.block("planner"):
            latent = linear(b, x, self._planner, "mean", self._latent, name="latent")
            start = linear(b, x, self._planner, "start", self._unroll.width, name="start")
            rows: list[Tensor] = []
            for state in self._unroll.states(b, latent, start, self._config.chunk_size):
                name = f"step.{len(rows)}"
                step = linear(b, state, self._planner, "step", len(trajectory.ACTION), name=name)
                rows.append(b.add(rows[-1], step, name=f"{name}.sum") if rows else step)
            return b.concat(rows, axis=0, name="plan")
