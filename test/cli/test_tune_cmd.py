from __future__ import annotations

import json
import platform
import re
from pathlib import Path

import pytest

from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.cli import tune_cmd
from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.graph.ir import Lifetime
from vla_simd_ros.sim import demo_policy

SMALL = {
    "dim_model": 64,
    "heads": 2,
    "feedforward": 96,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "chunk_size": 40,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tune") / "act"
    cameras, narrow = (Camera("front", 64, 96),), {"backbone_width": 32}
    make_checkpoint("act", folder, Options(seed=1, cameras=cameras, sizes=SMALL, settings=narrow))
    return str(folder)


def test_tiles_for_a_checkpoint_s_widths(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # nothing is compiled: that is tested where it is done
    files = ["--json", str(tmp_path / "r.json"), "--markdown", str(tmp_path / "r.md")]
    target = tmp_path / "target.json"
    isa = "neon" if platform.machine() == "x86_64" else "avx2"
    other = {"name": "other", "isa": isa, "lanes": 4, "registers": 32, "operand_mode": "lanes"}
    rates = {"fmas_per_cycle": 2, "loads_per_cycle": 2, "fma_latency": 4}
    target.write_text(json.dumps(other | rates))
    assert main(["tune", "--tiles", folder, "--target", str(target), *files]) == 0
    output = capsys.readouterr()
    assert output.err == "output widths of packed layers: 32, 64, 96, 128, 256, left out: 6\n"
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["target"]["name"], report["g"]) == ("other", 32)
    assert (tmp_path / "r.md").read_text() == output.out.removesuffix("\n")


def test_settings_are_measured_written_and_used(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["tune", folder, "--settings", "waiting", "--budget", "100", "--int8"]) == 0
    output = capsys.readouterr()
    assert "waiting: passive instead of active: " in output.err
    (file,) = (tmp_path / "vla_simd_ros" / "tuning").iterdir()
    assert f"written to {file}" in output.out
    content = json.loads(file.read_text())
    threads = content["settings"]["threads"]
    assert threads == content["machine"]["threads"] and f"threads = {threads}" in output.out
    assert len(content["measured"]) == 1
    assert f"int8 = {content['int8'] or 'no group is faster'}" in output.out
    content["settings"]["spin_us"] = 77  # what a later run finds there
    file.write_text(json.dumps(content))
    result = tmp_path / "bench.json"
    assert (
        main(["bench", folder, "--queries", "1", "--blocks", "1", "--warmup", "0", "--json", str(result)])
        == 0
    )
    assert json.loads(result.read_text())["results"][0]["details"]["spin_us"] == "77"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected a checkpoint, or --tiles"),
        (["{folder}", "--budget", "0"], "--budget is 0, expected seconds above 0"),
        (["{folder}", "--settings", "speed"], "setting 'speed' is not searched here, expected some of"),
        (["--tiles"], "expected a checkpoint or --g, one of the two"),
        (["--tiles", "x", "--g", "64"], "expected a checkpoint or --g, one of the two"),
        (["--tiles", "--g", "0"], "--g is 0, expected 1 or more"),
        (["--tiles", "--g", "64", "--int8"], "--int8 is of no use with --tiles"),
        (["--tiles", "--g", "64", "--json", "{folder}"], "is a folder, expected a file"),
        (["{folder}", "--g", "64"], "--g is of no use without --tiles"),
        (["{folder}", "--json", "a.json"], "--json is of no use without --tiles"),
        (["{folder}", "--out", "{folder}"], "cannot write {folder}: it is a folder, expected a file"),
        (["{folder}", "--out", "{folder}/config.json/a"], "{folder}/config.json: "),
        (["--tiles", "--g", "64", "--target", "avx3"], "target 'avx3' is unknown"),
    ],
)
def test_arguments_that_do_not_go_together(
    arguments: list[str], message: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *(argument.format(folder=folder) for argument in arguments)]) == 2
    error = capsys.readouterr().err  # no word of a measurement
    assert re.search(message.format(folder=folder), error) and error.count("\n") == 1


def test_layers_of_a_step_count_too(tmp_path: Path) -> None:
    small = demo_policy.SMALL["smolvla"]
    options = Options(cameras=(Camera("front", 64, 96),), sizes=small.sizes, settings=small.settings)
    make_checkpoint("smolvla", tmp_path / "c", options)
    ops = tune_cmd._ops(str(tmp_path / "c"))
    lifetimes = {op.output.lifetime for op in ops if op.kind == "linear"}
    assert lifetimes == {Lifetime.QUERY, Lifetime.STEP}
