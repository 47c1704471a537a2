"""Training action-token policies from demonstrations and from a teacher."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import token_doubles as doubles
from demonstration_doubles import Memory

from vla_simd_ros.checkpoints import CheckpointError, load_checkpoint

pytestmark = pytest.mark.needs_torch


@pytest.fixture(scope="module")
def impact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return doubles.make_impact(tmp_path_factory.mktemp("impact") / "impact")


@pytest.fixture(scope="module")
def teacher(impact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    asked = doubles.request(impact, tmp_path_factory.mktemp("teacher") / "run")
    return doubles.train(asked)


def test_the_loss_falls_and_the_encoder_stays(impact: Path, tmp_path: Path) -> None:
    from vla_simd_ros.training.text_source import round_to_bfloat16

    said: list[str] = []
    training = {**doubles.TRAINING, "steps": 30}
    folder = doubles.train(doubles.request(impact, tmp_path / "run", training=training), said)

    rows = doubles.log(tmp_path / "run")
    assert float(rows[-1]["cross_entropy"]) < 0.8 * float(rows[0]["cross_entropy"])
    assert all(0 <= float(row["held_out_l1"]) < 10 for row in rows)
    assert (tmp_path / "run" / "loss.png").read_bytes()[:4] == b"\x89PNG"
    trained, given = load_checkpoint(folder), load_checkpoint(impact)
    assert trained.type == "impact_tokens"
    frozen = [name for name in trained.tensors if not name.startswith("model.tokens.")]
    assert len(frozen) > 30
    for name in frozen:
        text = name.startswith("model.text.model.")
        expected = round_to_bfloat16(given.tensors[name]) if text else given.tensors[name]
        np.testing.assert_array_equal(trained.tensors[name], expected, err_msg=name)
    record = json.loads((folder / "train_config.json").read_text())
    assert (record["policy"], record["encoder_of"], record["step"]) == ("impact_tokens", str(impact), 30)


def test_bins_hold_all_actions_but_the_asked_share(impact: Path, tmp_path: Path) -> None:
    training = {**doubles.TRAINING, "action_quantile": 0.0, "held_out": 0.0}
    folder = doubles.train(doubles.request(impact, tmp_path / "run", training=training))
    tensors, frames = load_checkpoint(folder).tensors, Memory().frames
    relative = []
    for index, frame in enumerate(frames):
        same = [f for f in frames[index : index + 3] if f["episode_index"] == frame["episode_index"]]
        relative += [f["action"] - frame["observation.state"] for f in same]
    np.testing.assert_allclose(tensors["model.tokens.action_low"], np.min(relative, 0), atol=1e-6)
    np.testing.assert_allclose(tensors["model.tokens.action_high"], np.max(relative, 0), atol=1e-6)


@pytest.mark.parametrize("distill", [False, True])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(
    impact: Path, teacher: Path, tmp_path: Path, distill: bool
) -> None:
    source = teacher if distill else impact
    whole = load_checkpoint(
        doubles.train(doubles.request(source, tmp_path / "whole", distill=distill))
    ).tensors

    half: dict[str, Any] = {"distill": distill, "training": {**doubles.TRAINING, "steps": 3}}
    doubles.train(doubles.request(source, tmp_path / "half", **half))
    rest: dict[str, Any] = {"distill": distill, "resume": True, "settings": {}, "training": {"steps": 6}}
    resumed = load_checkpoint(doubles.train(doubles.request(source, tmp_path / "half", **rest))).tensors

    for name, values in whole.items():
        np.testing.assert_array_equal(values, resumed[name], err_msg=name)
    assert [row["step"] for row in doubles.log(tmp_path / "half")] == ["3", "6"]


def test_a_student_comes_closer_to_the_fixed_points(teacher: Path, tmp_path: Path) -> None:
    said: list[str] = []
    training = {**doubles.TRAINING, "steps": 45}
    asked = doubles.request(teacher, tmp_path / "run", distill=True, training=training)
    folder = doubles.train(asked, said)
    rows = doubles.log(tmp_path / "run")
    assert float(rows[-1]["loss"]) < 0.8 * float(rows[0]["loss"])
    assert all(float(row["consistency"]) >= 0 for row in rows)
    assert any("trajectories of" in line for line in said)
    record = json.loads((folder / "train_config.json").read_text())
    assert record["distilled_from"] == str(teacher)
    assert record["training"]["omega"] == 1.0
    given, learned = load_checkpoint(teacher), load_checkpoint(folder)
    assert learned.config == given.config
    for name in ("model.tokens.action_low", "model.tokens.action_high"):
        np.testing.assert_array_equal(learned.tensors[name], given.tensors[name])
    changed = [n for n in given.tensors if (given.tensors[n] != learned.tensors[n]).any()]
    assert changed and all(name.startswith("model.tokens.") for name in changed)


def test_a_policy_may_leave_the_encoder_where_it_is(impact: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    whole = doubles.train(doubles.request(impact, tmp_path / "whole"))
    part = doubles.train(doubles.request(impact, tmp_path / "part", share_weights=True))
    stored = load_file(part / "model.safetensors")
    assert all(name.startswith("model.tokens.") for name in stored)
    given, expected = load_checkpoint(part).tensors, load_checkpoint(whole).tensors
    assert set(stored) == {name for name in expected if name.startswith("model.tokens.")}
    for name in stored:
        np.testing.assert_array_equal(given[name], expected[name], err_msg=name)
    name = "model.encoder.layers.0.norm1.weight"
    np.testing.assert_array_equal(given[name], expected[name])
    # A student of it is as good as one of the whole.
    students = [
        load_checkpoint(
            doubles.train(
                doubles.request(teacher, tmp_path / name, distill=True, share_weights=teacher is part)
            )
        ).tensors
        for name, teacher in (("of_whole", whole), ("of_part", part))
    ]
    for name in students[0]:
        if not name.startswith("model.text.model."):
            np.testing.assert_array_equal(students[0][name], students[1][name], err_msg=name)


def test_what_is_trained_may_be_stored_in_half_the_space(impact: Path, tmp_path: Path) -> None:
    whole = load_checkpoint(doubles.train(doubles.request(impact, tmp_path / "whole"))).tensors
    half = load_checkpoint(doubles.train(doubles.request(impact, tmp_path / "half", half=True))).tensors
    for name, values in whole.items():
        trained = name.startswith("model.tokens.") and "action_" not in name
        np.testing.assert_array_equal(half[name], values.astype(np.float16) if trained else values)


def test_runs_share_what_was_encoded_and_harvested(teacher: Path, tmp_path: Path) -> None:
    shared: dict[str, Any] = {"distill": True, "cache": tmp_path / "frames", "trajectories": tmp_path / "t"}
    doubles.train(doubles.request(teacher, tmp_path / "one", **shared))
    said: list[str] = []
    training = {**doubles.TRAINING, "consistency": 0.0}
    doubles.train(doubles.request(teacher, tmp_path / "two", training=training, **shared), said)
    assert not any("encoded" in line for line in said)
    (row, *_) = doubles.log(tmp_path / "two")
    assert row["consistency"] == "" and float(row["cross_entropy"]) > 0
    assert len(list((tmp_path / "frames").glob("encoded-*.f16"))) == 1


def test_encoding_goes_on_where_it_was_interrupted(impact: Path, tmp_path: Path) -> None:
    cache = tmp_path / "frames"
    doubles.train(doubles.request(impact, tmp_path / "one", cache=cache))
    (path,) = cache.glob("encoded-*.f16")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 + 3])
    doubles.train(doubles.request(impact, tmp_path / "two", cache=cache))
    assert path.read_bytes() == whole


def test_what_does_not_fit_is_named(impact: Path, teacher: Path, tmp_path: Path) -> None:
    from vla_simd_ros.training.demonstrations import DataError
    from vla_simd_ros.training.recipe import RecipeError

    def refused(source: Path, **changes: Any) -> None:
        doubles.train(doubles.request(source, tmp_path / "run", **changes))

    with pytest.raises(CheckpointError, match=r"is of type 'impact_tokens', expected 'impact'"):
        refused(teacher)
    with pytest.raises(CheckpointError, match=r"is of type 'impact', expected 'impact_tokens'"):
        refused(impact, distill=True)
    with pytest.raises(RecipeError, match=r"setting 'dim_model' is unknown here, expected one of token"):
        refused(impact, settings={"dim_model": 8})
    with pytest.raises(RecipeError, match=r"setting 'action_bins' is unknown here, expected one of opt"):
        refused(teacher, distill=True, settings={"action_bins": 8})
    with pytest.raises(RecipeError, match=r"token_width is 18, expected an even multiple of token_heads, 4"):
        refused(impact, settings={"token_width": 18, "token_heads": 4, "token_kv_heads": 4})
    with pytest.raises(RecipeError, match=r"token_heads is 4, expected a multiple of token_kv_heads, 3"):
        refused(impact, settings={"token_heads": 4, "token_kv_heads": 3})
    with pytest.raises(RecipeError, match=r"action_bins is 1, expected 2 to"):
        refused(impact, settings={"action_bins": 1})
    with pytest.raises(RecipeError, match=r"chunk_size is '3', expected a value like 8"):
        refused(impact, settings={"chunk_size": "3"})
    with pytest.raises(RecipeError, match=r"consistency and omega are both 0"):
        refused(teacher, distill=True, training={"consistency": 0.0, "omega": 0.0})
    blind = Memory()
    del blind.features["observation.images.wrist"]
    with pytest.raises(DataError, match=r"the dataset has no camera 'wrist', it has front"):
        refused(impact, dataset=blind)
    doubles.train(doubles.request(impact, tmp_path / "run"))
    with pytest.raises(RecipeError, match=r"the run there is not .*distilled_from.* --resume expects"):
        refused(teacher, distill=True, resume=True)


def test_the_engine_decodes_the_tokens_that_were_harvested(teacher: Path, tmp_path: Path) -> None:
    from vla_simd_ros.inference import Policy
    from vla_simd_ros.observation import Observation
    from vla_simd_ros.training.trajectories import Trajectories

    doubles.train(doubles.request(teacher, tmp_path / "run", distill=True))
    harvested = Trajectories([tmp_path / "run" / "trajectories" / "part-00000.npz"])
    engine, frames = Policy.load(teacher, decoder="jacobi"), Memory().frames
    assert harvested.rows.tolist() == list(range(len(frames)))
    same = 0
    for row, frame in enumerate(frames):
        images = {camera: frame[f"observation.images.{camera}"] for camera in ("front", "wrist")}
        engine.set_instruction(frame["task"])
        decoded = engine.query(Observation(images, frame["observation.state"])).decoded
        assert decoded is not None
        same += decoded.tokens == tuple(harvested.of(row)[-1].tolist())
    # What training reads is rounded to half precision, which now and then decides between two bins.
    assert same >= 0.9 * len(frames)
