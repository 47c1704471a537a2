from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.consistency import Pair, Verdict
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.executors.convolution_forms import parse_layers
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.graph.int8_groups import int8_groups
from vla_simd_ros.tuning.settings_session import SettingsTask, tune_settings
from vla_simd_ros.tuning.tuned import shape_of, this_machine
from vla_simd_ros.tuning.tuning_file import TuningError

SIZES = {"dim_model": 16, "heads": 2, "feedforward": 24, "encoder_layers": 1, "decoder_layers": 1}


class EveryChangeIsFaster:
    """Stands in for SettingRuns."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> EveryChangeIsFaster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compare(self, a: EngineSettings, b: EngineSettings) -> tuple[Verdict, list[Pair]]:
        return Verdict(-0.1, 0.0, 0, 6, 6, "B"), []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("session") / "act"
    make_checkpoint("act", folder, Options(cameras=(Camera("top", 32, 48),), sizes=SIZES))
    return folder


@pytest.fixture(autouse=True)
def instant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vla_simd_ros.tuning.settings_session.SettingRuns", EveryChangeIsFaster)


def task(folder: Path, *names: str, budget_s: float = 10.0, int8: bool = False) -> SettingsTask:
    return SettingsTask(str(folder), "go", names, budget_s, int8)


def test_what_is_faster_is_written_down_with_the_algorithm_of_each_layer(folder: Path) -> None:
    said: list[str] = []
    tuned = tune_settings(task(folder, "convolution", "waiting"), said.append)
    assert tuned.checkpoint == shape_of(load_checkpoint(folder)) and tuned.machine == this_machine()
    assert tuned.settings["convolution"] == "measured" and tuned.settings["waiting"] == "passive"
    # The stem, and the layers of four stages: the first one of three of these has a stride.
    assert len(parse_layers(tuned.settings["convolution_layers"])) == 1 + 4 + 3
    assert [line for line in tuned.measured if line.startswith("waiting: passive instead of active: faster")]
    assert set(tuned.measured) <= set(said)
    assert tuned.int8 is None


def test_algorithms_are_not_written_down_where_none_is_chosen_by_layer(folder: Path) -> None:
    assert "convolution_layers" not in tune_settings(task(folder, "waiting"), lambda _: None).settings


def test_groups_in_int8_are_measured_when_asked_for(folder: Path) -> None:
    tuned = tune_settings(task(folder, "waiting", int8=True), lambda _: None)
    assert tuned.int8 is not None
    programs = instruct(load_checkpoint(folder), "go").compiled.programs
    groups = int8_groups(op for program in programs.values() for op in program.ops)
    assert set(filter(None, tuned.int8.split(","))) <= set(groups)


def test_the_budget_ends_the_search(folder: Path) -> None:
    seconds = itertools.count(0.0, 6.0)
    tuned = tune_settings(
        task(folder, "convolution", "waiting", budget_s=7.0), lambda _: None, lambda: next(seconds)
    )
    assert [line.endswith("not tried, the time was up") for line in tuned.measured][-1]
    assert "waiting" not in tuned.settings


def test_what_cannot_be_measured_is_no_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise BenchmarkError("runner 'vla_simd': no such kernels")

    monkeypatch.setattr(EveryChangeIsFaster, "compare", refused)
    expected = (
        "nothing could be measured: waiting: passive instead of active: runner 'vla_simd': no such kernels"
    )
    with pytest.raises(TuningError, match=expected):
        tune_settings(task(folder, "waiting", "attention"), lambda _: None)
    with pytest.raises(TuningError, match=r"nothing could be measured: .*the time was up"):
        tune_settings(
            task(folder, "waiting", budget_s=1.0), lambda _: None, itertools.count(0.0, 6.0).__next__
        )


def test_a_setting_that_is_not_searched(folder: Path) -> None:
    with pytest.raises(
        TuningError, match="setting 'affinity' is not searched here, expected some of convolution"
    ):
        tune_settings(task(folder, "affinity"), lambda _: None)
