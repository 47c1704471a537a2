"""Parameters of decoding against a policy that notes its decoder, and a clock that the test moves."""

from __future__ import annotations

from typing import Any

import pytest

from vla_simd_ros.decoding.base import Decoded, Exit, Pass
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.nodes.param import ParameterError, checked
from vla_simd_ros.nodes.query_decoding import DECODING_PARAMETERS, NotConverged, QueryDecoding
from vla_simd_ros.policies.base import PolicySpec


class Policy:
    spec = PolicySpec("fake", {}, 1, 0, 1, 4, 4)

    def __init__(self, spells: bool = True) -> None:
        self.action_tokens = object() if spells else None
        self.decoder: DecoderOptions | None = DecoderOptions() if spells else None
        self.told: list[str] = []

    def set_decoder(self, decoder: str, **options: Any) -> None:
        self.told.append(decoder)
        self.decoder = DecoderOptions(decoder, **options)


def decoding(policy: Policy, clock: Any = lambda: 50.0, **changes: Any) -> QueryDecoding:
    return QueryDecoding(policy, checked(DECODING_PARAMETERS, changes), clock)


def decoded(exit_: Exit) -> Decoded:
    return Decoded((3, 4), (Pass(2, 0, (3, 4), 2, 0.25, 0.5),), exit_, exit_ is Exit.FIXED_POINT)


def test_a_policy_is_told_what_its_parameters_say_and_once() -> None:
    policy = Policy()
    made = decoding(policy, decoder="early_exit", sigma=0.7, max_passes=9, block=4, decoder_seed=3)
    for _ in range(2):
        made.apply(policy)
    assert policy.decoder == DecoderOptions("early_exit", 0.7, 9, 4, "random", 3)
    assert policy.told == ["early_exit"]


def test_changes_hold_from_the_next_query_and_leave_the_rest() -> None:
    policy = Policy()
    made = decoding(policy, block=4)
    made.take(made.changed({"decoder": "jacobi", "num_steps": 3}))
    assert policy.told == []
    made.apply(policy)
    made.take(made.changed({"initialization": "repeat"}))
    made.apply(policy)
    assert policy.decoder == DecoderOptions("jacobi", block=4, initialization="repeat")


@pytest.mark.parametrize("changes", [{"decoder": "early_exit"}, {"decoder": "early_exit", "block": 7}])
def test_what_does_not_go_together_is_refused_and_nothing_is_taken(changes: dict[str, Any]) -> None:
    policy = Policy()
    made = decoding(policy, sigma=0.0, block=4)
    with pytest.raises(ParameterError, match="decoder: got 'early_exit': sigma is 0"):
        made.take(made.changed(changes))
    made.apply(policy)
    assert policy.decoder == DecoderOptions(sigma=0.0, block=4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"decoder": "jacobi"}, "decoder: got 'jacobi'"),
        ({"query_deadline_ms": 20.0}, "query_deadline_ms: got 20.0"),
        ({"accept_unconverged": True}, "accept_unconverged: got True"),
    ],
)
def test_a_policy_without_tokens_takes_none_of_it(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=f"{words}, but the policy 'fake' decodes no tokens"):
        decoding(Policy(spells=False), **changes)
    made = decoding(Policy(spells=False))
    with pytest.raises(ParameterError, match=words):
        made.take(made.changed(changes))
    made.apply(Policy(spells=False))
    assert made.given() == {} and made.judge(None) is None


def test_the_deadline_counts_from_the_query() -> None:
    now = [50.0]
    made = decoding(Policy(), lambda: now[0], query_deadline_ms=20.0)
    assert made.given() == {"deadline": pytest.approx(50.02)}
    now[0] = 60.0
    assert made.given() == {"deadline": pytest.approx(60.02)}
    made.take(made.changed({"query_deadline_ms": 0.0}))
    assert made.given() == {}


@pytest.mark.parametrize(
    ("exit_", "words"),
    [(Exit.DEADLINE, "after 1 passes, when its deadline came"), (Exit.MAX_PASSES, "no more passes were")],
)
def test_what_ran_out_is_used_only_where_that_is_accepted(exit_: Exit, words: str) -> None:
    policy = Policy()
    made = decoding(policy, decoder="jacobi")
    made.apply(policy)
    for good in (Exit.FIXED_POINT, Exit.CONFIDENT, Exit.COMPLETE, Exit.STOP_TOKEN):
        assert made.judge(decoded(good)) is not None
    assert made.unconverged == 0
    with pytest.raises(NotConverged, match=words):
        made.judge(decoded(exit_))
    made.take(made.changed({"accept_unconverged": True}))
    how = made.judge(decoded(exit_))
    assert how is not None and how.options.decoder == "jacobi" and how.decoded.exit is exit_
    assert made.unconverged == 2
