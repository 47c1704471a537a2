"""MindDrive: one language model that decides and then acts, under two adapters.

The decision expert reads the scene and weighs a few decisions; what it settles for is a row among those that
the action expert reads. That one's last two rows give the speed profile and the path.
"""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Graph, Tensor
from vla_simd_ros.policies.blocks.adapters import AdaptedWeights
from vla_simd_ros.policies.blocks.language_pass import LanguagePass
from vla_simd_ros.policies.config_fields import misfit, positive
from vla_simd_ros.policies.driving_config import read_driving_config
from vla_simd_ros.policies.driving_scene import DrivingPlanner, perceptron
from vla_simd_ros.policies.weights import Weights

HEADS = ("detection", "map")
EXPERTS = ("decision", "action")
ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The matrices of a layer that an adapter changes."""
_PATH_COLUMNS = 3


@dataclass(frozen=True)
class AdapterConfig:
    """Rank of the adapters, and what their product is multiplied by."""

    rank: int
    scale: float


class MindDrivePolicy(DrivingPlanner):
    """MindDrive-like planner with random or trained weights. Raises CheckpointError for what does not fit."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint, read_driving_config(checkpoint, biased=True), HEADS)
        self._decisions = positive(checkpoint, "decisions", 7)
        adapter = read_adapter_config(checkpoint)
        shared = Weights(checkpoint.weights, "model.text.")
        self._passes = {
            expert: LanguagePass(
                self._config.text,
                self._config.text_layers,
                AdaptedWeights(
                    checkpoint.weights,
                    shared,
                    f"model.adapters.{expert}.",
                    ADAPTED,
                    adapter.rank,
                    adapter.scale,
                ),
                expert,
            )
            for expert in EXPERTS
        }

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        """The graph for an instruction of ``tokens`` tokens, 1 to ``spec.max_instruction_tokens``."""
        b = Builder()
        instruction = self._scene.instruction(b, tokens)
        state, motion = self._scene.state(b)
        observed = self._scene.observed(b, motion)
        with b.block("decision.0"):
            asked = b.concat([*observed, self._scene.learned(b, "decision")], axis=0, name="rows")
        decided = self._decided(b, self._passes["decision"].read(b, instruction, asked, 1))
        with b.block("action.0"):
            asking = [self._scene.learned(b, name) for name in ("speed", "path")]
            asked = b.concat([*observed, decided, *asking], axis=0, name="rows")
        planned = self._passes["action"].read(b, instruction, asked, len(asking))
        self._scene.plan(b, self._planned(b, planned), state)
        return b.graph()

    def _decided(self, b: Builder, x: Tensor) -> Tensor:
        """The row for the decision: those of all decisions, each as far as it is likely."""
        weights, width = self._scene.weights, x.shape[1]
        with b.block(f"decision.{self._config.text_layers - 1}"):
            scores = b.linear(
                x, weights.constant(b, "decision_head.weight", self._decisions, width), name="scores"
            )
            table = weights.constant(b, "decisions.weight", self._decisions, width)
            likely = b.softmax(scores, name="likely")
            return b.linear(likely, b.transpose(table, (1, 0), name="table"), name="decided")

    def _planned(self, b: Builder, x: Tensor) -> Tensor:
        """The plan [chunk_size, 4] from the rows for speed and path."""
        count = self._config.chunk_size
        with b.block("planner"):
            parts = []
            for row, (name, columns) in enumerate((("speed", 1), ("path", _PATH_COLUMNS))):
                asked = b.slice(x, axis=0, start=row, stop=row + 1, name=f"{name}.row")
                flat = perceptron(
                    b, asked, self._scene.weights, f"planner.{name}", count * columns, name=name
                )
                parts.append(b.reshape(flat, (count, columns), name=f"{name}.rows"))
            speed, path = parts
            return b.concat([path, speed], axis=1, name="plan")


def read_adapter_config(checkpoint: Checkpoint) -> AdapterConfig:
    """Fields ``adapter_rank`` and ``adapter_alpha``. Raises CheckpointError."""
    rank = positive(checkpoint, "adapter_rank", 16)
    alpha = float(checkpoint.option("adapter_alpha", float, 32.0))
    if not alpha > 0:
        raise misfit(checkpoint, "adapter_alpha", alpha, "a number greater than 0")
    return AdapterConfig(rank, alpha / rank)
