"""Repeating the step program of a policy that iterates: from noise to a chunk of actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from vla_simd_ros.executors.base import InputError, Runnable
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.observation import finite_rows
from vla_simd_ros.policies.base import GuidedSolver, PolicyDefinition, PolicySpec, Solver

# Step counts and strengths of guidance whose inputs are kept.
_KEPT_SCHEDULES = 8


@dataclass(frozen=True, eq=False)
class Prefix:
    """Rows of the previous chunk that reach into the one to be predicted (real-time chunking).

    ``actions`` [n, action_dim] in robot units; row 0 has the time of row 0 of the new chunk. The first
    ``frozen`` rows will have been executed before the new chunk can be used; the weights of those after
    them fall to zero at row ``horizon``, as ``schedule`` says. ``max_guidance_weight`` limits how hard a
    step is drawn to them. What is None is as the checkpoint has it (the solver's ``guidance``).
    """

    actions: Array
    frozen: int
    horizon: int | None = None
    schedule: str | None = None
    max_guidance_weight: float | None = None


def no_solver(policy: str, given: str) -> InputError:
    """The error of a policy that repeats no steps, but was given what only those take that do."""
    return InputError(f"the policy '{policy}' has no solver, it takes no {given}")


@dataclass(frozen=True, eq=False)
class Plan:
    """A query's ``steps`` (their inputs but the sample), and noise [rows, width], or [1 + steps, rows, width]
    with step noise."""

    steps: Sequence[Mapping[str, Array]]
    noise: Array


class Sampler:
    """Plans and runs the steps of one policy's queries. Noise that is not given comes from one generator
    with ``seed`` (None: another one each time)."""

    def __init__(self, spec: PolicySpec, solver: Solver, seed: int | None = None) -> None:
        self.solver = solver
        self._spec = spec
        self._generator = np.random.default_rng(seed)
        self._schedules: dict[tuple[int, float | None], Sequence[Mapping[str, Array]]] = {}

    def plan(
        self, noise: Array | None = None, num_steps: int | None = None, prefix: Prefix | None = None
    ) -> Plan:
        """The steps of a query. Raises InputError for what does not fit."""
        steps = self._steps(num_steps, None if prefix is None else self._strongest(prefix))
        count = len(steps)
        return Plan(
            steps, self._draw(self._generator, count) if noise is None else self._checked(noise, count)
        )

    def noise(self, seed: int, num_steps: int | None = None) -> Array:
        """The noise that ``seed`` stands for; nothing is drawn. Raises InputError."""
        return self._draw(np.random.default_rng(seed), len(self._steps(num_steps, None)))

    def blank_plan(self) -> Plan:
        """The steps of a query of the default length from noise of zeros; nothing is drawn."""
        steps = self._steps(None, None)
        return Plan(steps, np.zeros(self._noise_shape(len(steps)), np.float32))

    def _draw(self, generator: np.random.Generator, count: int) -> Array:
        """Noise for ``count`` steps from N(0, 1)."""
        return generator.standard_normal(self._noise_shape(count), np.float32)

    def prefix_inputs(self, prefix: Prefix | None) -> dict[str, Array]:
        """The inputs of the query program for a prefix, or none. Raises InputError for what does not fit."""
        if not self._spec.takes_prefix or not isinstance(self.solver, GuidedSolver):
            if prefix is not None:
                raise InputError(f"the policy '{self._spec.type}' takes no prefix")
            return {}
        rows = self._spec.chunk_size
        actions = np.zeros((rows, self._spec.action_dim), np.float32)
        weights = np.zeros((rows, 1), np.float32)
        if prefix is not None:
            given, horizon, schedule = self._checked_prefix(prefix, self.solver)
            actions[: len(given)] = given
            weights[:] = self.solver.prefix_weights(rows, min(prefix.frozen, horizon), horizon, schedule)
        return {"prefix": actions, "prefix_weights": weights}

    def run(self, executable: Runnable, plan: Plan, steps: int | None = None) -> Array:
        """Run the step program ``steps`` times (None: as often as planned) after the query program; the
        actions."""
        *_, last = islice(self.iterate(executable, plan), steps)
        return last["action"]

    def iterate(self, executable: Runnable, plan: Plan) -> Iterator[Mapping[str, Array]]:
        """Run the step program as often as planned; its outputs after each step."""
        samples = plan.noise if self.solver.noise_per_step else plan.noise[None]
        sample = samples[0]
        for index, given in enumerate(plan.steps):
            inputs = {"sample": sample, **given}
            if self.solver.noise_per_step:
                inputs["step_noise"] = samples[1 + index]
            outputs = executable.run(Lifetime.STEP, inputs)
            yield outputs
            sample = outputs["sample"]

    def _steps(self, num_steps: int | None, max_guidance: float | None) -> Sequence[Mapping[str, Array]]:
        count = self.solver.default_steps if num_steps is None else num_steps
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
            raise InputError(f"num_steps is {count}, expected a whole number, 1 or more")
        if max_guidance is not None and not 0 < max_guidance < np.inf:
            raise InputError(f"max_guidance_weight is {max_guidance}, expected a finite number above 0")
        key = int(count), max_guidance
        if key not in self._schedules:
            while len(self._schedules) >= _KEPT_SCHEDULES:
                del self._schedules[next(iter(self._schedules))]
            self._schedules[key] = self._scheduled(*key)
        return self._schedules[key]

    def _scheduled(self, count: int, max_guidance: float | None) -> Sequence[Mapping[str, Array]]:
        try:
            if max_guidance is not None and isinstance(self.solver, GuidedSolver):
                return self.solver.guided_steps(count, max_guidance)
            return self.solver.steps(count)
        except ValueError as error:
            raise InputError(f"num_steps is {count}: {error}") from None

    def _noise_shape(self, count: int) -> tuple[int, ...]:
        shape = self.solver.sample_shape
        return (1 + count, *shape) if self.solver.noise_per_step else shape

    def _checked(self, noise: Array, count: int) -> Array:
        noise, expected = np.asarray(noise), self._noise_shape(count)
        if noise.shape != expected:
            raise InputError(
                f"noise: got shape {list(noise.shape)}, expected {list(expected)}"
                + (f" (the first sample, then the noise of {count} steps)" if len(expected) > 2 else "")
            )
        return finite_rows("noise", noise.reshape(-1, expected[-1])).reshape(expected)

    def _strongest(self, prefix: Prefix) -> float | None:
        """How hard the steps of a query may be drawn to its prefix; None where nothing draws them."""
        if not isinstance(self.solver, GuidedSolver):
            return None
        most = prefix.max_guidance_weight
        return self.solver.guidance.max_weight if most is None else most

    def _checked_prefix(self, prefix: Prefix, solver: GuidedSolver) -> tuple[Array, int, str]:
        """The rows as float32, the horizon, and how weights fall."""
        given, width, rows = np.asarray(prefix.actions), self._spec.action_dim, self._spec.chunk_size
        if given.ndim != 2 or given.shape[1] != width or not 1 <= len(given) <= rows:
            raise InputError(f"prefix: got shape {list(given.shape)}, expected [1 to {rows}, {width}]")
        if not 0 <= prefix.frozen <= len(given):
            raise InputError(f"prefix: {prefix.frozen} of {len(given)} rows are frozen, expected 0 to all")
        horizon = solver.guidance.horizon if prefix.horizon is None else prefix.horizon
        if horizon < 1:
            raise InputError(f"prefix: horizon is {horizon}, expected 1 or more")
        schedule = solver.guidance.schedule if prefix.schedule is None else prefix.schedule
        if schedule not in solver.schedules:
            known = ", ".join(solver.schedules)
            raise InputError(f"prefix: schedule '{schedule}' is unknown, expected one of {known}")
        return finite_rows("prefix", given), min(horizon, len(given)), schedule


def takes_fewer_steps(solver: Solver | None) -> bool:
    """Whether a query can be asked for fewer solver steps than it takes by default."""
    return solver is not None and any(_admits(solver, count) for count in range(1, solver.default_steps))


def _admits(solver: Solver, count: int) -> bool:
    try:
        solver.steps(count)
    except ValueError:
        return False
    return True


def make_sampler(definition: PolicyDefinition, seed: int | None) -> Sampler | None:
    """What repeats the steps of a policy; None for one pass. Raises InputError for a seed that is no use."""
    if definition.solver is not None:
        return Sampler(definition.spec, definition.solver, seed)
    if seed is not None:
        raise InputError(f"seed is {seed}, but the policy '{definition.spec.type}' draws no noise")
    return None


def check_sampling(definition: PolicyDefinition, num_steps: int | None, seed: int | None) -> None:
    """Raise InputError where a policy cannot be asked for so many steps, or has no use for a seed."""
    sampler = make_sampler(definition, seed)
    if num_steps is None:
        return
    if sampler is None:
        raise no_solver(definition.spec.type, "num_steps")
    sampler.noise(0, num_steps)
