"""A policy ready to be asked: observation in, action chunk in robot units out."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints.checkpoint import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.errors import InstructionError
from vla_simd_ros.decoding.action_decoder import TokenPlan, make_action_decoder, no_tokens
from vla_simd_ros.decoding.base import Decoded, DecodingError
from vla_simd_ros.decoding.decoders import DEFAULT_OPTIONS, DEFAULT_SIGMA, DecoderOptions
from vla_simd_ros.executors.base import Cancelled, Executable, Executor, InputError, Runnable
from vla_simd_ros.executors.settings import EngineSettings, SettingError, keep_exact
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.loaded_programs import LoadedPrograms
from vla_simd_ros.observation import Observation, blank_observation, observation_inputs
from vla_simd_ros.policies.base import ActionTokens, PolicySpec, Solver
from vla_simd_ros.policies.registry import define_policy
from vla_simd_ros.request import Request, make_request
from vla_simd_ros.sampling import Plan, Prefix, make_sampler, no_solver
from vla_simd_ros.tuning.tuned import resolve

__all__ = [
    "EXECUTORS",
    "Cancelled",
    "DecoderOptions",
    "DecodingError",
    "InputError",
    "Observation",
    "Policy",
    "Prefix",
    "Query",
    "Timing",
    "make_executor",
    "observation_inputs",
]

EXECUTORS = ("simd", "torch", "reference")

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class Timing:
    """Where the time of a query went, in milliseconds.

    ``preprocess_ms`` is checking the observation and laying it out for the engine (normalization of
    images is part of the query program), ``step_ms`` all solver steps, or the decoding of all action
    tokens, 0 for a policy without, ``handover_ms`` between the two parts of a query that two executors share.
    """

    preprocess_ms: float
    query_ms: float
    step_ms: float
    postprocess_ms: float
    total_ms: float
    handover_ms: float = 0.0


@dataclass(frozen=True, eq=False)
class Query:
    """The answer to an observation: ``actions`` float32 [chunk_size, action_dim] in robot units.

    ``decoded`` tells how they came about where they are spelled in tokens. Where it has not converged, time
    or passes ran out, and what there is of the actions is a guess.
    """

    actions: npt.NDArray[np.float32]
    timing: Timing
    decoded: Decoded | None = None


class Policy:
    """A loaded policy. Use :meth:`load` to make one; use it from one thread at a time.

    An instruction of another length needs other programs; these are compiled when the length first
    occurs and kept for the lengths used last. All share one copy of the weights.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        executor: Executor,
        int8: str | Sequence[str] = "",
        seed: int | None = None,
        decoder: DecoderOptions = DEFAULT_OPTIONS,
    ) -> None:
        definition = define_policy(checkpoint)
        self.spec: PolicySpec = definition.spec
        """What the policy takes and gives."""
        self.action_tokens: ActionTokens | None = definition.action_tokens
        """How actions are spelled; None for a policy that computes them directly."""
        self._sampler = make_sampler(definition, seed)
        self._decoder = make_action_decoder(self.spec, self.action_tokens, self._passes, decoder)
        self.isa = executor.isa
        """The instruction set, or the library, that computes."""
        self.threads = executor.threads
        """Threads that compute; 0 where the executor leaves it to its library."""
        self.instruction_truncated = False
        """Whether the instruction was longer than the policy takes, and was cut."""
        self._executor = executor
        self._tokenizer = checkpoint.tokenizer() if self.spec.uses_instruction else None
        self._programs: LoadedPrograms | None = LoadedPrograms(definition, executor, int8)
        self.int8 = self._programs.int8
        """The groups of layers that are computed in int8; see :mod:`vla_simd_ros.graph.int8_groups`."""
        self._active: Executable | None = None
        self._instruction = ""
        self._instruction_tokens: int | None = None
        if not self.spec.uses_instruction:
            self._active = self._programs.executable(None)
            self._active.run(Lifetime.EPISODE, {})

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        executor: str = "simd",
        settings: EngineSettings | str | Path = "default",
        int8: str | Sequence[str] = "",
        exact: bool = False,
        seed: int | None = None,
        decoder: str = "auto",
        sigma: float = DEFAULT_SIGMA,
        max_passes: int = 0,
        block: int = 0,
        initialization: str = "random",
        decoder_seed: int = 0,
        **changes: Any,
    ) -> Policy:
        """Load a LeRobot ``pretrained_model`` folder.

        ``executor`` is "simd" (this package's engine), "torch" or "reference" (float64 numpy, slow).
        ``settings`` are the engine's: "auto" takes those that ``vla_simd tune`` found for such a checkpoint
        on this machine, and the defaults where there are none; a path those of its file. Keyword arguments
        (``threads=2``) replace single ones; the only one for the other executors is ``threads``. ``int8``
        names the groups of layers to compute in int8 ("encoder.ffn,backbone.conv"), "all", or "auto" for
        those that the engine computes faster so on this machine; every other layer is computed in fp32.
        ``exact`` keeps the fp32 layers as close to float64 as fp32 can: convolution="exact", linear="direct".
        ``seed`` is that of the noise that queries draw; without it every policy that is loaded draws other
        noise. For a policy that spells actions in tokens, ``decoder`` and what follows it are those of
        :meth:`set_decoder`. Raises CheckpointError for a folder that does not fit, SettingError for settings
        that cannot be had, TuningError for a file of settings that is of no use here, Int8GroupError for
        groups that the policy does not have, InputError for a seed of a policy that draws no noise or a
        decoder of one without tokens, DecodingError for a decoder that does not exist.
        """
        options = DecoderOptions(decoder, sigma, max_passes, block, initialization, decoder_seed)
        checkpoint = load_checkpoint(folder)
        if executor != "simd" and not isinstance(settings, EngineSettings):
            settings = EngineSettings()
        groups = int8 if isinstance(int8, str) else ",".join(int8)
        chosen = resolve(settings, checkpoint, keep_exact(changes) if exact else changes, groups)
        return cls(checkpoint, make_executor(executor, chosen.settings), chosen.int8, seed, options)

    @property
    def name(self) -> str:
        """The policy's type, e.g. "impact"."""
        return self.spec.type

    @property
    def supports_prefix(self) -> bool:
        """Whether rows that are already committed can be given to a query (real-time chunking)."""
        return self.spec.takes_prefix

    @property
    def solver(self) -> Solver | None:
        """How the step program is repeated; None for a policy that computes its actions in one pass or spells
        them in tokens."""
        return None if self._sampler is None else self._sampler.solver

    @property
    def decoder(self) -> DecoderOptions | None:
        """What decodes the action tokens; None for a policy that has none."""
        return None if self._decoder is None else self._decoder.options

    def set_decoder(
        self,
        decoder: str = "auto",
        *,
        sigma: float = DEFAULT_SIGMA,
        max_passes: int = 0,
        block: int = 0,
        initialization: str = "random",
        decoder_seed: int = 0,
    ) -> None:
        """Decode the action tokens of later queries with another decoder, a name of
        :data:`vla_simd_ros.decoding.decoders.DECODERS`.

        ``sigma`` is the probability that is enough for "early_exit"; ``max_passes`` limits the passes of a
        query (0: none); ``block`` tokens are decoded at once (0: all of a chunk); the first guesses are
        ``initialization`` ("random", from ``decoder_seed``, or "repeat"). "auto" and what is not given are
        without effect for a policy without tokens. Raises InputError for anything else it is asked of one,
        and DecodingError for what does not exist; the decoder stays as it was then.
        """
        options = DecoderOptions(decoder, sigma, max_passes, block, initialization, decoder_seed)
        self._decoder = make_action_decoder(self.spec, self.action_tokens, self._passes, options)

    def set_instruction(self, text: str) -> float:
        """Run the episode program for an instruction; returns the milliseconds spent, compiling included.

        One that is set already costs nothing. A longer text than the policy takes is cut, and
        ``instruction_truncated`` set. A policy without instruction ignores it. Raises :class:`InputError`
        for an empty text; no instruction is set then.
        """
        programs = self._open()
        if self._tokenizer is None:
            return 0.0
        if self._active is not None and text == self._instruction:
            return 0.0
        start = time.perf_counter_ns()
        # Nothing is set while this runs, and where it fails.
        self._active = None
        try:
            tokens = self._tokenizer.tokenize(text)
        except InstructionError as error:
            raise InputError(str(error)) from None
        programs.check_stored()
        executable = programs.executable(len(tokens.ids))
        executable.run(Lifetime.EPISODE, {"token_ids": np.array(tokens.ids, np.int32)})
        self._active, self._instruction = executable, text
        self._instruction_tokens = len(tokens.ids)
        self.instruction_truncated = tokens.truncated
        return (time.perf_counter_ns() - start) / _NS_PER_MS

    def query(
        self,
        observation: Observation,
        *,
        noise: Array | None = None,
        num_steps: int | None = None,
        prefix: Prefix | None = None,
        deadline: float = math.inf,
    ) -> Query:
        """Predict a chunk of actions.

        For a policy that iterates: ``noise`` [rows, width] is its first sample, or [1 + steps, rows, width]
        that and the noise of each step where steps take some; without it the policy draws its own.
        ``num_steps`` replaces the solver's default. ``prefix`` are rows of the previous chunk to go on from.
        For a policy that spells actions in tokens: no pass but the first begins after ``deadline``, a time of
        time.monotonic() in seconds; see :attr:`Query.decoded` for what became of it.
        Raises :class:`InputError`, naming the camera or vector, what was given and what is expected,
        when a policy that takes an instruction has none, and for what the policy does not take;
        :class:`DecodingError` for scores that are not finite and tokens that spell no actions. The policy can
        be asked again after either.
        """
        executable = self.executable
        start = time.perf_counter_ns()
        request = self.request(
            observation, noise=noise, num_steps=num_steps, prefix=prefix, deadline=deadline
        )
        prepared = time.perf_counter_ns()
        outputs = executable.run(Lifetime.QUERY, request.values)
        queried = time.perf_counter_ns()
        result, decoded = self.actions(executable, request, outputs)
        solved = time.perf_counter_ns() if request.goes_on else queried
        actions = np.asarray(result, np.float32)
        end = time.perf_counter_ns()
        timing = Timing(
            preprocess_ms=(prepared - start) / _NS_PER_MS,
            query_ms=(queried - prepared) / _NS_PER_MS,
            step_ms=(solved - queried) / _NS_PER_MS,
            postprocess_ms=(end - solved) / _NS_PER_MS,
            total_ms=(end - start) / _NS_PER_MS,
        )
        return Query(actions, timing, decoded)

    @property
    def executable(self) -> Executable:
        """The programs for the instruction that is set, as the executor loaded them. Raises InputError where
        none is set and one is needed."""
        self._open()
        if self._active is None:
            raise InputError(f"no instruction is set, the policy '{self.name}' needs one before a query")
        return self._active

    def request(
        self,
        observation: Observation,
        *,
        noise: Array | None = None,
        num_steps: int | None = None,
        prefix: Prefix | None = None,
        deadline: float = math.inf,
    ) -> Request:
        """What :meth:`query` asks of the programs, which takes the same arguments; for those who run them one
        by one. Raises InputError."""
        return make_request(
            self.spec,
            self._sampler,
            observation,
            noise=noise,
            num_steps=num_steps,
            prefix=prefix,
            decoder=self._decoder,
            instruction=self._instruction_tokens,
            text=self._instruction,
            deadline=deadline,
        )

    def actions(
        self, steps: Runnable, request: Request, outputs: Mapping[str, Array]
    ) -> tuple[Array, Decoded | None]:
        """The actions of a query whose program gave ``outputs``, and how their tokens were decoded; solver or
        decoding steps, where there are any, run on ``steps``. Raises DecodingError."""
        if request.tokens is not None:
            return self.decode(steps, request.tokens)
        if request.plan is not None:
            return self.solve(steps, request.plan), None
        return outputs["action"], None

    def solve(self, executable: Runnable, plan: Plan, steps: int | None = None) -> Array:
        """The actions after ``steps`` solver steps (None: all that are planned), the query program having run
        on ``executable``."""
        if self._sampler is None:
            raise no_solver(self.name, "solver steps")
        return self._sampler.run(executable, plan, steps)

    def decode(self, executable: Runnable, plan: TokenPlan) -> tuple[Array, Decoded]:
        """The actions, and how their tokens were decoded, the query program having run on ``executable``.

        Raises DecodingError as :meth:`query` does, and InputError for a policy without tokens.
        """
        if self._decoder is None:
            raise no_tokens(self.name)
        return self._decoder.run(executable, plan)

    def noise(self, seed: int, num_steps: int | None = None) -> Array:
        """The noise that a ``seed`` stands for, for a query of ``num_steps`` steps. Raises InputError for a
        number of steps that the policy cannot do, or one that does not iterate."""
        if self._sampler is None:
            raise no_solver(self.name, "noise")
        return self._sampler.noise(seed, num_steps)

    def warm_up(self) -> None:
        """Run every program once on zeros, so that the first query is as fast as the others."""
        programs = self._open()
        executable, length = self._active, self._instruction_tokens
        if executable is None:
            # Any instruction will do: most of what is prepared does not depend on its length.
            length = self.spec.max_instruction_tokens
            executable = programs.executable(length)
            executable.run(Lifetime.EPISODE, {"token_ids": np.zeros(length, np.int32)})
        inputs = observation_inputs(self.spec, self.blank_observation())
        if self._sampler is not None:
            inputs.update(self._sampler.prefix_inputs(None))
        given: Mapping[str, Array] = inputs
        if self._decoder is not None:
            given, length = self._decoder.prompted(inputs, self._instruction, length)
        executable.run(Lifetime.QUERY, given)
        if self._sampler is not None:
            self._sampler.run(executable, self._sampler.blank_plan(), steps=1)
        if self._decoder is not None:
            self._decoder.warm_up(executable, self._decoder.plan(inputs, length))

    def blank_observation(self) -> Observation:
        """Black images and zeros, of the sizes that the policy takes."""
        return blank_observation(self.spec)

    def cancel(self) -> None:
        """From any thread: end the query that is running, and later ones until :meth:`resume`, with
        :class:`Cancelled`.

        So does the setting of an instruction; then none is set.
        """
        self._executor.cancel()

    def resume(self) -> None:
        """Let queries run again after :meth:`cancel`."""
        self._executor.resume()

    def close(self) -> None:
        """Free the weights; the policy cannot be used afterwards."""
        self._programs = None
        self._active = None

    def _passes(self, rows: int) -> Executable:
        return self._open().passes(rows)

    def _open(self) -> LoadedPrograms:
        if self._programs is None:
            raise RuntimeError(f"the policy '{self.name}' is closed")
        return self._programs


def make_executor(name: str, settings: EngineSettings) -> Executor:
    """The executor called ``name``; "torch:cuda:0" is PyTorch on a device, as it calls that.

    Raises SettingError for an unknown one, one that is not installed, a device that is not there, or settings
    it cannot have.
    """
    name, _, device = name.partition(":")
    if device and name in EXECUTORS and name != "torch":
        raise SettingError(f"executor '{name}' has no devices, got '{device}'")
    if name == "simd":
        from vla_simd_ros.executors.simd_executor import SimdExecutor

        return SimdExecutor(settings)
    if name not in EXECUTORS:
        raise SettingError(f"executor '{name}' is unknown, expected one of {', '.join(EXECUTORS)}")
    if others := settings.but(threads=0).changed():
        raise SettingError(
            f"executor '{name}' has no {', '.join(others)}, expected executor 'simd' with these"
        )
    if name == "torch":
        try:
            from vla_simd_ros.executors.torch_executor import TorchExecutor
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise SettingError(
                "executor 'torch' needs PyTorch, which is not installed: pip install 'vla_simd_ros[training]'"
            ) from None

        return TorchExecutor(threads=settings.threads, device=device or "cpu")
    from vla_simd_ros.executors.reference_executor import ReferenceExecutor

    return ReferenceExecutor()
