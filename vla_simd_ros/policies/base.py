"""What a policy is to the rest of the package: a specification, and a graph for an instruction's length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from vla_simd_ros.graph.ir import Graph


@dataclass(frozen=True)
class CameraSpec:
    """The images that a policy expects of one camera, in pixels, RGB."""

    height: int
    width: int
    channels: int = 3


@dataclass(frozen=True)
class PolicySpec:
    """What goes into a policy and what comes out.

    ``cameras`` are in the network's order. ``state_dim`` and ``env_state_dim`` are 0 where the policy
    takes none. ``chunk_size`` rows are predicted, of which ``n_action_steps`` are meant to be executed.
    ``max_instruction_tokens`` is 0 for a policy without instruction. ``temporal_ensemble_coeff`` is the
    weight decay the policy was configured to blend overlapping chunks with, if it was. ``takes_prefix``:
    the first rows of a chunk can be given, and the policy predicts their continuation. ``camera_features``
    has the checkpoint's own name of each camera that its preprocessor renames.
    """

    type: str
    cameras: Mapping[str, CameraSpec]
    state_dim: int
    env_state_dim: int
    action_dim: int
    chunk_size: int
    n_action_steps: int
    uses_instruction: bool = False
    max_instruction_tokens: int = 0
    temporal_ensemble_coeff: float | None = None
    takes_prefix: bool = False
    camera_features: Mapping[str, str] = field(default_factory=dict)


class PolicyDefinition(Protocol):
    """A policy read from a checkpoint."""

    @property
    def spec(self) -> PolicySpec: ...

    def check_stored(self) -> None:
        """Raise CheckpointError where weights that are used where they are stored have changed there."""
        ...

    def build(self, tokens: int | None = None) -> Graph:
        """The policy's graph, for an instruction of ``tokens`` tokens where it uses one.

        Runtime inputs: ``image.<camera>`` uint8 [H, W, 3], ``state`` float32 [1, S], ``env_state``
        float32 [1, E] (all QUERY), ``token_ids`` int32 [tokens] (EPISODE), as far as the policy has
        them. Output: ``action`` float32 [chunk_size, action_dim] in robot units. Graphs built from one
        definition share their constants.
        """
        ...
