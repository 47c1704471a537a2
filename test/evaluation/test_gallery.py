"""Which episodes are shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_world import LEFT, RIGHT, BrokenPolicy, DeafPolicy, LinePolicy, LineWorld

from vla_simd_ros.evaluation.episodes import plan
from vla_simd_ros.evaluation.execution import Execution
from vla_simd_ros.evaluation.gallery import Gallery, write_animation, write_examples
from vla_simd_ros.evaluation.policy_pilot import PolicyPilot
from vla_simd_ros.evaluation.session import Condition, Outcome, evaluate
from vla_simd_ros.evaluation.world import EvaluationError, Limits, World

Image = pytest.importorskip(
    "PIL.Image", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'"
)


def outcome(policy: LinePolicy, count: int = 10) -> Outcome:
    execution = Execution()
    condition = Condition("line", "fp32", execution)
    episodes = plan(count, (LEFT, RIGHT))
    return evaluate(
        condition, LineWorld(), PolicyPilot(policy, execution), episodes, Limits(40), lambda _: None
    )


def test_a_few_successes_and_failures(tmp_path: Path) -> None:
    said: list[str] = []
    paths = write_examples(LineWorld(), outcome(DeafPolicy()), tmp_path / "films", said.append)
    name = "line-fp32-time-aligned-all-rows-back-to-back-delay-0-ms-as-they-are"
    assert [path.name for path in paths] == [
        f"{name}-{verdict}{number}.gif" for verdict in ("success", "failure") for number in (1, 2, 3)
    ]
    assert all(path.is_file() for path in paths) and len(said) == 6


def test_one_success_with_each_instruction(tmp_path: Path) -> None:
    size = write_animation(LineWorld(), outcome(LinePolicy()).results, tmp_path / "front.gif")
    assert size == (tmp_path / "front.gif").stat().st_size
    with Image.open(tmp_path / "front.gif") as read:
        assert read.size == (128, 60)


def test_without_a_success_there_is_nothing_to_show(tmp_path: Path) -> None:
    failed = [result for result in outcome(DeafPolicy()).results if not result.success]
    with pytest.raises(EvaluationError, match="no episode succeeded"):
        write_animation(LineWorld(), failed, tmp_path / "front.gif")


def test_the_animation_is_of_the_first_condition_and_stages_are_closed(tmp_path: Path) -> None:
    stages: list[LineWorld] = []

    def stage(world: World) -> World:
        stages.append(LineWorld())
        return stages[-1]

    said: list[str] = []
    gallery = Gallery(stage, None, tmp_path / "front.gif", said.append)
    for policy in (LinePolicy(), DeafPolicy()):
        gallery.show(LineWorld(), outcome(policy, 4))
    assert len(said) == 1 and "front.gif, 0.0" in said[0]
    assert [each.closed for each in stages] == [True]


def test_an_animation_of_nothing_is_told_and_loses_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    gallery = Gallery(lambda same: same, None, tmp_path / "front.gif", said.append)
    gallery.show(LineWorld(), outcome(BrokenPolicy(), 2))
    assert said == [
        f"no animation: {tmp_path / 'front.gif'}: no episode succeeded, expected at least one to show"
    ]


def test_a_world_that_is_its_own_stage_stays_open(tmp_path: Path) -> None:
    world = LineWorld()
    gallery = Gallery(lambda same: same, tmp_path, None, lambda _: None)
    gallery.show(world, outcome(LinePolicy(), 2))
    assert not world.closed
