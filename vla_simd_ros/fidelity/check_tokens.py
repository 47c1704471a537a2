"""The comparison behind ``vla_simd check`` for policies that spell their actions.

Both sides read the tokens that the reference decodes in float64, so that their scores can be compared number
by number; what the engine decodes by itself is compared too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.executors.base import Executor
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.check import OutputReport, TokenReport
from vla_simd_ros.fidelity.errors import UnavailableReferenceError
from vla_simd_ros.fidelity.measure import BOUND, distance
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.fidelity.references import Array, Speller, make_reference
from vla_simd_ros.inference import Policy


@dataclass(frozen=True, eq=False)
class Spelled:
    """What a reference makes of some cases: these with the tokens to read, and the scores of all tokens."""

    cases: list[Case]
    scores: list[Array]

    @property
    def tokens(self) -> list[tuple[int, ...]]:
        """The tokens of every chunk."""
        return [tuple(int(token) for token in scores.argmax(axis=1)) for scores in self.scores]


def spell(model: object, reference: str, cases: Sequence[Case]) -> Spelled:
    """Let a reference decode. Raises `UnavailableReferenceError` for one that tells no scores."""
    speller = _speller(model, reference)
    found = [speller.tokens(case) for case in cases]
    read = [replace(case, tokens=tuple(tokens[:-1])) for case, tokens in zip(cases, found, strict=True)]
    scores = [speller.scores(case, tokens[:-1]) for case, tokens in zip(cases, found, strict=True)]
    return Spelled(read, scores)


def compare_tokens(
    checkpoint: Checkpoint,
    executor: Executor,
    reference: str,
    instruction: str,
    cases: Sequence[Case],
    progress: Callable[[str], None],
    bound: float = BOUND,
) -> tuple[OutputReport, list[Case]]:
    """Scores and tokens of ``executor`` against those of ``reference``, and the cases with the tokens that
    were read. Raises as :func:`vla_simd_ros.fidelity.check.compare`."""
    progress(f"reference {reference} in float64")
    exact = spell(make_reference(reference, checkpoint, instruction, np.float64), reference, cases)
    progress(f"reference {reference} in float32")
    model = _speller(make_reference(reference, checkpoint, instruction, np.float32), reference)
    single = np.concatenate([model.scores(case, list(case.tokens or ())) for case in exact.cases])
    progress(f"engine, {len(cases)} observations")
    policy = instruct(checkpoint, instruction)
    executable = executor.load(policy.compiled)
    ours = np.concatenate([policy.scores(executable, case) for case in exact.cases])
    double = np.concatenate(exact.scores)
    report = OutputReport(
        name="scores",
        shape=exact.scores[0].shape,
        largest=float(np.abs(double).max()),
        error=distance(ours, single),
        error_float64=distance(ours, double),
        departure=distance(single, double),
        least_bound=bound,
        tokens=_compare_chunks(_decoded(checkpoint, executor, instruction, cases), exact),
    )
    return report, exact.cases


def _speller(model: object, reference: str) -> Speller:
    if not isinstance(model, Speller):
        raise UnavailableReferenceError(f"reference '{reference}' tells no scores, expected one that does")
    return model


def _decoded(
    checkpoint: Checkpoint, executor: Executor, instruction: str, cases: Sequence[Case]
) -> list[tuple[int, ...]]:
    """The tokens of queries as users make them."""
    policy = Policy(checkpoint, executor)
    policy.set_instruction(instruction)
    queries = [policy.query(case.observation) for case in cases]
    return [query.decoded.tokens for query in queries if query.decoded is not None]


def _compare_chunks(ours: Sequence[tuple[int, ...]], exact: Spelled) -> TokenReport:
    same, margin = 0, 0.0
    largest = max(float(np.abs(scores).max()) for scores in exact.scores)
    for found, expected, scores in zip(ours, exact.tokens, exact.scores, strict=True):
        if found == expected:
            same += 1
            continue
        pairs = enumerate(zip(found, expected, strict=False))
        place = next(place for place, (mine, theirs) in pairs if mine != theirs)
        margin = max(margin, float(scores[place].max() - scores[place][found[place]]) / largest)
    return TokenReport(len(ours), same, margin)
