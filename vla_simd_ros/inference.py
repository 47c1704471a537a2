"""A policy ready to be asked: observation in, action chunk in robot units out."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints.checkpoint import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.errors import InstructionError
from vla_simd_ros.executors.base import Cancelled, Executable, Executor, InputError
from vla_simd_ros.executors.int8_choice import choose_int8
from vla_simd_ros.executors.settings import EngineSettings, SettingError, keep_exact
from vla_simd_ros.graph.compile import compile_graph, optimize
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.policies.base import CameraSpec, PolicyDefinition, PolicySpec
from vla_simd_ros.policies.registry import define_policy
from vla_simd_ros.tuning.tuned import resolve

__all__ = ["EXECUTORS", "Cancelled", "InputError", "Observation", "Policy", "Query", "Timing"]

EXECUTORS = ("simd", "torch", "reference")

# Compiled programs are kept for this many instruction lengths.
_KEPT_LENGTHS = 4
_IMAGE_RANK = 3
_NS_PER_MS = 1e6


@dataclass(frozen=True, eq=False)
class Observation:
    """What the robot sees and feels at one moment.

    ``images`` are RGB, uint8 [H, W, 3], by camera name; ``state`` and ``env_state`` float vectors in robot
    units, None (or empty) where the policy takes none.
    """

    images: Mapping[str, npt.NDArray[np.uint8]]
    state: npt.NDArray[np.floating[Any]] | None = None
    env_state: npt.NDArray[np.floating[Any]] | None = None


@dataclass(frozen=True)
class Timing:
    """Where the time of a query went, in milliseconds.

    ``preprocess_ms`` is checking the observation and laying it out for the engine (normalization of
    images is part of the query program), ``step_ms`` all solver steps together, 0 for a policy without.
    """

    preprocess_ms: float
    query_ms: float
    step_ms: float
    postprocess_ms: float
    total_ms: float


@dataclass(frozen=True, eq=False)
class Query:
    """The answer to an observation: ``actions`` float32 [chunk_size, action_dim] in robot units."""

    actions: npt.NDArray[np.float32]
    timing: Timing


class _Programs:
    """The weights of a policy and its compiled programs, for the instruction lengths used last."""

    def __init__(self, definition: PolicyDefinition, executor: Executor, int8: str | Sequence[str]) -> None:
        self._definition = definition
        self._executor = executor
        self._fold_cache = FoldCache()
        self.int8 = self._choose(int8) if int8 else ()
        self._executables: OrderedDict[int | None, Executable] = OrderedDict()

    def check_stored(self) -> None:
        """Raise CheckpointError if the checkpoint's file was written to and is still needed."""
        self._definition.check_stored()

    def _choose(self, int8: str | Sequence[str]) -> tuple[str, ...]:
        """The groups of layers in int8: the same for instructions of every length."""
        longest = self._definition.build(self._definition.spec.max_instruction_tokens or None)
        return choose_int8(int8, optimize(longest, self._fold_cache).ops, self._executor)

    def executable(self, tokens: int | None) -> Executable:
        """The programs for an instruction of ``tokens`` tokens, compiled if they are not there."""
        if tokens in self._executables:
            self._executables.move_to_end(tokens)
        else:
            compiled = compile_graph(self._definition.build(tokens), self._fold_cache, self.int8)
            beside = next(reversed(self._executables.values()), None)
            self._executables[tokens] = self._executor.load(compiled, beside)
            while len(self._executables) > _KEPT_LENGTHS:
                self._executables.popitem(last=False)
        return self._executables[tokens]


class Policy:
    """A loaded policy. Use :meth:`load` to make one; use it from one thread at a time.

    An instruction of another length needs other programs; these are compiled when the length first
    occurs and kept for the lengths used last. All share one copy of the weights.
    """

    def __init__(self, checkpoint: Checkpoint, executor: Executor, int8: str | Sequence[str] = "") -> None:
        definition = define_policy(checkpoint)
        self.spec: PolicySpec = definition.spec
        """What the policy takes and gives."""
        self.isa = executor.isa
        """The instruction set, or the library, that computes."""
        self.threads = executor.threads
        """Threads that compute; 0 where the executor leaves it to its library."""
        self.instruction_truncated = False
        """Whether the instruction was longer than the policy takes, and was cut."""
        self._executor = executor
        self._tokenizer = checkpoint.tokenizer() if self.spec.uses_instruction else None
        self._programs: _Programs | None = _Programs(definition, executor, int8)
        self.int8 = self._programs.int8
        """The groups of layers that are computed in int8; see :mod:`vla_simd_ros.graph.int8_groups`."""
        self._active: Executable | None = None
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
        **changes: Any,
    ) -> Policy:
        """Load a LeRobot ``pretrained_model`` folder.

        ``executor`` is "simd" (this package's engine), "torch" or "reference" (float64 numpy, slow).
        ``settings`` are the engine's: "auto" takes those that ``vla_simd tune`` found for such a checkpoint
        on this machine, and the defaults where there are none; a path those of its file. Keyword arguments
        (``threads=2``) replace single ones; the only one for the other executors is ``threads``. ``int8``
        names the groups of layers to compute in int8 ("encoder.ffn,backbone.conv"), "all", or "auto" for
        those that the engine computes faster so on this machine; every other layer is computed in fp32.
        ``exact`` keeps the fp32 layers as close to float64 as fp32 can (convolution="exact").
        Raises CheckpointError for a folder that does not fit, SettingError for settings that cannot be had,
        TuningError for a file of settings that is of no use here, Int8GroupError for groups that the policy
        does not have.
        """
        checkpoint = load_checkpoint(folder)
        if executor != "simd" and not isinstance(settings, EngineSettings):
            settings = EngineSettings()
        groups = int8 if isinstance(int8, str) else ",".join(int8)
        chosen = resolve(settings, checkpoint, keep_exact(changes) if exact else changes, groups)
        return cls(checkpoint, make_executor(executor, chosen.settings), chosen.int8)

    @property
    def name(self) -> str:
        """The policy's type, e.g. "impact"."""
        return self.spec.type

    @property
    def supports_prefix(self) -> bool:
        """Whether rows that are already committed can be given to a query (real-time chunking)."""
        return self.spec.takes_prefix

    def set_instruction(self, text: str) -> float:
        """Run the episode program for an instruction; returns the milliseconds spent, compiling included.

        A longer text than the policy takes is cut, and ``instruction_truncated`` set. A policy without
        instruction ignores it. Raises :class:`InputError` for an empty text; no instruction is set then.
        """
        programs = self._open()
        if self._tokenizer is None:
            return 0.0
        start = time.perf_counter_ns()
        self._active = None
        try:
            tokens = self._tokenizer.tokenize(text)
        except InstructionError as error:
            raise InputError(str(error)) from None
        programs.check_stored()
        executable = programs.executable(len(tokens.ids))
        executable.run(Lifetime.EPISODE, {"token_ids": np.array(tokens.ids, np.int32)})
        self._active = executable
        self.instruction_truncated = tokens.truncated
        return (time.perf_counter_ns() - start) / _NS_PER_MS

    def query(self, observation: Observation) -> Query:
        """Predict a chunk of actions.

        Raises :class:`InputError`, naming the camera or vector, what was given and what is expected, and
        when a policy that takes an instruction has none.
        """
        self._open()
        if self._active is None:
            raise InputError(f"no instruction is set, the policy '{self.name}' needs one before a query")
        start = time.perf_counter_ns()
        inputs = observation_inputs(self.spec, observation)
        prepared = time.perf_counter_ns()
        outputs = self._active.run(Lifetime.QUERY, inputs)
        computed = time.perf_counter_ns()
        actions = np.asarray(outputs["action"], np.float32)
        end = time.perf_counter_ns()
        timing = Timing(
            preprocess_ms=(prepared - start) / _NS_PER_MS,
            query_ms=(computed - prepared) / _NS_PER_MS,
            step_ms=0.0,
            postprocess_ms=(end - computed) / _NS_PER_MS,
            total_ms=(end - start) / _NS_PER_MS,
        )
        return Query(actions, timing)

    def warm_up(self) -> None:
        """Run every program once on zeros, so that the first query is as fast as the others."""
        programs = self._open()
        executable = self._active
        if executable is None:
            # Any instruction will do: most of what is prepared does not depend on its length.
            length = self.spec.max_instruction_tokens
            executable = programs.executable(length)
            executable.run(Lifetime.EPISODE, {"token_ids": np.zeros(length, np.int32)})
        executable.run(Lifetime.QUERY, observation_inputs(self.spec, self.blank_observation()))

    def blank_observation(self) -> Observation:
        """Black images and zeros, of the sizes that the policy takes."""
        cameras = {
            name: np.zeros((camera.height, camera.width, camera.channels), np.uint8)
            for name, camera in self.spec.cameras.items()
        }
        state, env_state = (np.zeros(n, np.float32) for n in (self.spec.state_dim, self.spec.env_state_dim))
        return Observation(cameras, state, env_state)

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

    def _open(self) -> _Programs:
        if self._programs is None:
            raise RuntimeError(f"the policy '{self.name}' is closed")
        return self._programs


def make_executor(name: str, settings: EngineSettings) -> Executor:
    """The executor called ``name``. Raises SettingError for an unknown one, or settings it cannot have."""
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
        from vla_simd_ros.executors.torch_executor import TorchExecutor

        return TorchExecutor(threads=settings.threads)
    from vla_simd_ros.executors.reference_executor import ReferenceExecutor

    return ReferenceExecutor()


def observation_inputs(spec: PolicySpec, observation: Observation) -> dict[str, Array]:
    """The runtime inputs of the query program; raises :class:`InputError` for what does not fit."""
    expected = ", ".join(spec.cameras) or "none"
    for name in observation.images:
        if name not in spec.cameras:
            raise InputError(f"camera '{name}' is unknown, the checkpoint expects: {expected}")
    inputs: dict[str, Array] = {}
    for name, camera in spec.cameras.items():
        if name not in observation.images:
            raise InputError(f"camera '{name}' is missing, the checkpoint expects: {expected}")
        inputs[f"image.{name}"] = _image(name, observation.images[name], camera)
    vectors = (
        ("state", observation.state, spec.state_dim),
        ("env_state", observation.env_state, spec.env_state_dim),
    )
    for name, vector, width in vectors:
        if vector is None and width:
            raise InputError(f"{name} is missing, the checkpoint expects [{width}]")
        checked = _vector(name, np.zeros(0, np.float32) if vector is None else np.asarray(vector), width)
        if width:
            inputs[name] = checked[None]
    return inputs


def _image(name: str, image: Array, camera: CameraSpec) -> Array:
    expected = f"the checkpoint expects {camera.width}x{camera.height} uint8 with {camera.channels} channels"
    array = np.asarray(image)
    if array.ndim != _IMAGE_RANK:
        raise InputError(f"camera '{name}': got an array of shape {list(array.shape)}, {expected}")
    height, width, channels = array.shape
    if array.dtype != np.uint8 or (height, width, channels) != (camera.height, camera.width, camera.channels):
        got = f"{width}x{height} {array.dtype} with {channels} channels"
        raise InputError(f"camera '{name}': got {got}, {expected}")
    return np.ascontiguousarray(array)


def _vector(name: str, vector: Array, width: int) -> Array:
    if vector.shape != (width,):
        raise InputError(f"{name}: got shape {list(vector.shape)}, the checkpoint expects [{width}]")
    if vector.dtype.kind != "f":
        raise InputError(f"{name}: got {vector.dtype}, expected floating-point values")
    with np.errstate(over="ignore"):
        values = vector.astype(np.float32)
    for index, value in enumerate(values):
        if not math.isfinite(value):
            raise InputError(f"{name}: value {index} is {vector[index]}, expected a finite number")
    return np.asarray(values)
