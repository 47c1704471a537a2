from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from vla_simd_ros.checkpoints import CheckpointError
from vla_simd_ros.checkpoints.sharded import INDEX, ShardedTensors

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
VALUES = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.ones(4, np.float32),
    "c": np.full((3, 2), 0.5, np.float16),
}
PLACES = {"a": ONE, "b": ONE, "c": TWO}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (ONE, TWO):
        save_file({key: VALUES[key] for key, place in PLACES.items() if place == name}, tmp_path / name)
    write_index(tmp_path, PLACES)
    return tmp_path


def write_index(folder: Path, places: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 52}, "weight_map": places}))


def test_tensors_are_found_in_their_files(folder: Path) -> None:
    stored = ShardedTensors(folder / INDEX)
    assert set(stored) == set(VALUES)
    assert len(stored) == 3
    assert "c" in stored
    assert "d" not in stored
    assert stored.shapes == {name: values.shape for name, values in VALUES.items()}
    for name, values in VALUES.items():
        assert stored[name].dtype == np.float32
        np.testing.assert_array_equal(stored[name], values)
        np.testing.assert_array_equal(stored.tensor(name, values.shape), values)
        np.testing.assert_array_equal(stored.mapped(name), values)
        assert stored.shape(name) == values.shape
        assert stored.size(name) == values.size
    np.testing.assert_array_equal(stored.rows("c", 1, 3), VALUES["c"][1:])


def test_a_tensor_that_no_file_has_is_named(folder: Path) -> None:
    stored = ShardedTensors(folder / INDEX)
    with pytest.raises(CheckpointError, match=r"index\.json: tensor 'd' is missing"):
        stored.tensor("d")
    with pytest.raises(CheckpointError, match=r"'a' has shape \[2, 3\], expected \[3, 2\]"):
        stored.shape("a", (3, 2))


def test_a_mapped_file_that_changes_is_noticed(folder: Path) -> None:
    stored = ShardedTensors(folder / INDEX)
    stored.mapped("a")
    stored.check_mapped()
    with (folder / ONE).open("ab") as file:
        file.write(b"more")
    with pytest.raises(CheckpointError, match=f"{ONE}: was changed"):
        stored.check_mapped()


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({**PLACES, "d": TWO}, f"tensor 'd' is said to be in {TWO}, which has none"),
        ({"a": "model-00003.safetensors"}, "model-00003.safetensors: no such file"),
        ({"a": f"../{ONE}"}, "expected a file's name in the folder"),
        ({"a": 3}, r"weight_map\['a'\] is an integer \(3\)"),
        ({}, "'weight_map' names no tensor"),
        ([], "'weight_map' is a list, expected an object"),
    ],
    ids=str,
)
def test_an_index_that_does_not_fit_is_refused(folder: Path, places: object, message: str) -> None:
    write_index(folder, places)
    with pytest.raises(CheckpointError, match=message):
        ShardedTensors(folder / INDEX)
