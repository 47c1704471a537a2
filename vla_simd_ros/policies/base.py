"""What a policy is to the rest of the package: a specification, a graph for an instruction's length, and how
its step program is repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from vla_simd_ros.graph.ir import Array, Graph


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
    rows of the previous chunk can be given, and the policy predicts their continuation; its solver is a
    :class:`GuidedSolver` then. ``camera_features`` has the checkpoint's own name of each camera that its
    preprocessor renames. ``observation_steps`` observations, one step period apart, make one query;
    ``takes_observation_mask``: the policy is told which of them there were. ``relative_actions``: action
    tokens spell how far an action is from the observed state, which the query adds.
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
    observation_steps: int = 1
    takes_observation_mask: bool = False
    relative_actions: bool = False


class Solver(Protocol):
    """How the step program is repeated: a sample goes in, the next one comes out; the first is noise.

    The graph has STEP inputs ``sample`` float32 ``sample_shape``, ``step_noise`` of the same shape if
    ``noise_per_step``, and those that :meth:`steps` names; its STEP outputs are ``sample``, the next one,
    and ``action``.
    """

    @property
    def default_steps(self) -> int:
        """Steps of a query that asks for no other number."""
        ...

    @property
    def sample_shape(self) -> tuple[int, int]:
        """Rows and width of a sample."""
        ...

    @property
    def noise_per_step(self) -> bool:
        """Whether every step takes noise of its own, drawn from N(0, 1)."""
        ...

    def steps(self, count: int) -> Sequence[Mapping[str, Array]]:
        """The other STEP inputs of each of ``count`` steps (1 or more), by name; arrays as the graph
        declares them. Raises ValueError for a count that it cannot do, naming what it can."""
        ...


@dataclass(frozen=True)
class Guidance:
    """How a checkpoint has its chunks continue the previous one; what a query says itself comes first.

    Up to row ``horizon`` the next chunk is drawn to the previous one, with weights that fall as
    ``schedule`` says (one of the solver's), by no more than ``max_weight`` in a step. ``enabled``: nodes
    give the policy such rows although none of their parameters asks for it.
    """

    schedule: str
    horizon: int = 10
    max_weight: float = 10.0
    enabled: bool = True


@runtime_checkable
class GuidedSolver(Solver, Protocol):
    """A solver that can be guided by rows of the previous chunk (real-time chunking).

    The graph has QUERY inputs ``prefix`` float32 [chunk_size, action_dim], in robot units, the rows after
    those that there are zero, and ``prefix_weights`` float32 [chunk_size, 1]. Weights of zero give the bits
    of a query without prefix. How hard a step is drawn to the prefix is among its STEP inputs.
    """

    @property
    def schedules(self) -> Sequence[str]:
        """Names of the ways in which weights fall from the frozen rows to the free ones."""
        ...

    @property
    def guidance(self) -> Guidance:
        """What holds for a query that does not say it."""
        ...

    def prefix_weights(self, rows: int, frozen: int, horizon: int, schedule: str) -> Array:
        """Weights float32 [rows, 1] of a prefix whose first ``frozen`` rows hold, falling to zero at
        ``horizon``; 0 <= frozen, horizon <= rows."""
        ...

    def guided_steps(self, count: int, max_guidance_weight: float) -> Sequence[Mapping[str, Array]]:
        """As :meth:`steps`, with guidance no stronger than ``max_guidance_weight``."""
        ...


class ActionTokens(Protocol):
    """How a policy spells a chunk of actions in tokens.

    The graph of such a policy keeps keys and values of what is observed in states: those of the prefix are
    left by the query program, those of the tokens by the step program. That has the STEP inputs ``step_ids``
    and ``step_positions``, int32 [rows], and gives ``scores`` float32 [rows, vocabulary] of the tokens that
    follow; of what runs before it, it reads nothing but the states. These have rows for what a pass appends
    past the last token (:func:`vla_simd_ros.decoding.cached_model.state_rows`).
    """

    @property
    def vocabulary(self) -> int:
        """Tokens that the step program scores, numbered from 0."""
        ...

    @property
    def first(self) -> int:
        """The token that the step program reads first: behind the prefix, before the first action token."""
        ...

    @property
    def count(self) -> int:
        """Most tokens of a chunk."""
        ...

    @property
    def stop(self) -> frozenset[int]:
        """Tokens that end a chunk, each the last of it; empty where there are always ``count``."""
        ...

    def prefix_rows(self, tokens: int | None) -> int:
        """Rows that the query program keeps, for an instruction of ``tokens`` tokens."""
        ...

    def actions(self, tokens: Sequence[int]) -> Array:
        """The chunk that ``tokens`` spell, float32 [chunk_size, action_dim] in robot units; fewer rows where
        decoding ended before all were whole. Raises DecodingError for tokens that spell no actions."""
        ...


@runtime_checkable
class PromptedTokens(ActionTokens, Protocol):
    """Action tokens behind a prompt that is prepared anew for every query: it tells the observed state too,
    or shows a part of a frame.

    The graph of such a policy is built for as many tokens as the prompt has with the longest state. It has
    the QUERY inputs that :meth:`prompt` gives.
    """

    def prompt(
        self, instruction: str, tokens: int, values: Mapping[str, Array]
    ) -> tuple[Mapping[str, Array], int]:
        """The inputs of the query program for an instruction, of the graph built for ``tokens`` tokens, and
        how many of these the prompt has; ``values`` are those of the observation."""
        ...


class PolicyDefinition(Protocol):
    """A policy read from a checkpoint."""

    @property
    def spec(self) -> PolicySpec: ...

    @property
    def solver(self) -> Solver | None:
        """How the step program is repeated; None for a policy that computes its actions in one pass or spells
        them in tokens."""
        ...

    @property
    def action_tokens(self) -> ActionTokens | None:
        """How actions are spelled; None for a policy that computes them directly."""
        ...

    def check_stored(self) -> None:
        """Raise CheckpointError where weights that are used where they are stored have changed there."""
        ...

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        """The policy's graph, for an instruction of ``tokens`` tokens where it uses one, and with ``rows`` of
        action tokens in a run of the step program where it scores such.

        Runtime inputs: ``image.<camera>`` uint8 [H, W, 3], ``state`` float32 [1, S], ``env_state``
        float32 [1, E] (all QUERY), ``token_ids`` int32 [tokens] (EPISODE), as far as the policy has
        them, and those of its solver. With n > 1 observation steps: ``image.<camera>.<k>`` with k = 0 for
        the oldest, ``state`` [n, S], ``env_state`` [n, E]; ``observation_mask`` float32 [n, 1], 1 for
        an observation that there was, if the policy takes it. Output: ``action`` float32
        [chunk_size, action_dim] in robot units, or ``scores`` of action tokens. Graphs built from one
        definition share their constants and states.
        """
        ...
