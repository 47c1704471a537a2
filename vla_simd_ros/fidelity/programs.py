"""A checkpoint's policy compiled for one instruction, to be run by any executor."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.decoding.action_decoder import ActionDecoder, TokenPlan
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.executors.base import Runnable
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.int8_groups import group_names
from vla_simd_ros.graph.ir import Array, Lifetime, Tensor
from vla_simd_ros.graph.passes.quantize import with_int8_layers
from vla_simd_ros.graph.programs import CompiledPolicy, Program
from vla_simd_ros.graph.state import APPEND
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.registry import define_policy
from vla_simd_ros.request import Request, make_request
from vla_simd_ros.sampling import Sampler, make_sampler

_ONE_BY_ONE = DecoderOptions("autoregressive")


@dataclass(frozen=True, eq=False)
class Part:
    """A program that has run, which step it was (from 1), and its outputs."""

    lifetime: Lifetime
    step: int | None
    outputs: Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class InstructedPolicy:
    """Compiled programs, the instruction's tokens where the policy takes one, and what repeats its steps
    where it iterates, or decodes its action tokens where it spells them."""

    spec: PolicySpec
    compiled: CompiledPolicy
    token_ids: npt.NDArray[np.int32] | None
    sampler: Sampler | None = None
    decoder: ActionDecoder | None = None
    instruction: str = ""

    def run(self, executable: Runnable, case: Case) -> dict[str, Array]:
        """Run every program, the step program as often as it takes; the last outputs of each in the
        executor's own precision."""
        outputs: dict[str, Array] = {}
        for part in self.parts(executable, case):
            outputs |= part.outputs
        return outputs

    def scores(self, executable: Runnable, case: Case) -> Array:
        """Run every program; the scores of what follows the prefix and each token that is read, of a policy
        that spells its actions: [tokens, vocabulary]."""
        parts = self.parts(executable, case)
        return np.concatenate([part.outputs["scores"] for part in parts if part.lifetime is Lifetime.STEP])

    def inputs(self, case: Case) -> dict[str, Array]:
        """The runtime inputs of the episode and the query program, by name."""
        return self._with_instruction(self._request(case))

    def parts(self, executable: Runnable, case: Case) -> Iterator[Part]:
        """The same, pausing after each program and each step."""
        request = self._request(case)
        values = self._with_instruction(request)
        for lifetime in (Lifetime.EPISODE, Lifetime.QUERY):
            inputs = self.compiled.programs[lifetime].own_inputs(values)
            yield Part(lifetime, None, executable.run(lifetime, inputs))
        if self.sampler is not None and request.plan is not None:
            for step, outputs in enumerate(self.sampler.iterate(executable, request.plan), 1):
                yield Part(Lifetime.STEP, step, outputs)
        if self.decoder is not None and request.tokens is not None:
            for step, outputs in enumerate(self._tokens(executable, request.tokens, case), 1):
                yield Part(Lifetime.STEP, step, outputs)

    def _tokens(self, executable: Runnable, plan: TokenPlan, case: Case) -> Iterator[Mapping[str, Array]]:
        assert self.decoder is not None
        if case.tokens is None:
            return self.decoder.iterate(executable, plan)
        return self.decoder.read(executable, plan, case.tokens)

    def keeping_every_tensor(self) -> InstructedPolicy:
        """The same programs, providing every tensor they compute."""

        def keep(program: Program) -> Program:
            # What is provided may be an input too. States are not any program's to provide.
            computed = (op.output for op in program.ops if op.kind != APPEND)
            every = dict.fromkeys([*program.provides, *computed])
            return replace(program, provides=tuple(every))

        programs = {lifetime: keep(program) for lifetime, program in self.compiled.programs.items()}
        return replace(self, compiled=replace(self.compiled, programs=programs))

    def with_int8(self, layers: Collection[Tensor]) -> InstructedPolicy:
        """The same programs with the layers that compute ``layers`` in int8."""
        return replace(self, compiled=with_int8_layers(self.compiled, layers))

    def _request(self, case: Case) -> Request:
        return make_request(
            self.spec,
            self.sampler,
            case.observation,
            noise=case.noise,
            num_steps=case.num_steps,
            prefix=case.prefix,
            decoder=self.decoder,
            instruction=None if self.token_ids is None else len(self.token_ids),
            text=self.instruction,
        )

    def _with_instruction(self, request: Request) -> dict[str, Array]:
        tokens = {} if self.token_ids is None else {"token_ids": self.token_ids}
        return {**request.values, **tokens}


def instruct(checkpoint: Checkpoint, instruction: str, int8: str | Sequence[str] = "") -> InstructedPolicy:
    """Compile the policy of ``checkpoint``, the groups named by ``int8`` in int8. Raises CheckpointError,
    InstructionError, Int8GroupError."""
    policy = define_policy(checkpoint)
    ids = None
    if policy.spec.uses_instruction:
        ids = np.array(checkpoint.tokenizer().encode(instruction), np.int32)
    graph = policy.build(None if ids is None else len(ids))
    compiled = compile_graph(graph, FoldCache(), group_names(int8))
    decoder = None
    if policy.action_tokens is not None:
        decoder = ActionDecoder(policy.spec, policy.action_tokens, _no_passes, _ONE_BY_ONE)
    return InstructedPolicy(policy.spec, compiled, ids, make_sampler(policy, None), decoder, instruction)


def _no_passes(rows: int) -> Runnable:
    raise AssertionError(f"a pass of {rows} tokens, expected one after the other")
