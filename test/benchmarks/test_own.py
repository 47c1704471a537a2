from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vla_simd_ros.benchmarks.backend import OURS, OURS_FP32, RUNNERS, Setup, resolve
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Options, make_checkpoint
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.fidelity.cases import random_cases

SIZES = {
    "dim_model": 32, "heads": 2, "feedforward": 48, "chunk_size": 4, "encoder_layers": 1, "decoder_layers": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("own") / "act"
    make_checkpoint("act", made, Options(seed=1, cameras=(), env_state_dim=3, sizes=SIZES))
    return made


def test_beside_itself_in_int8_the_engine_computes_in_fp32(folder: Path) -> None:
    (case,) = random_cases(load_checkpoint(folder), 1, 0)
    setup = Setup(str(folder), "", EngineSettings(threads=1), int8="head")
    mixed, single = (resolve(RUNNERS[name].factory)(setup) for name in (OURS, OURS_FP32))
    assert (mixed.details["int8"], single.details["int8"]) == ("head", "")
    plain = resolve(RUNNERS[OURS].factory)(Setup(str(folder), "", EngineSettings(threads=1)))
    np.testing.assert_array_equal(single.query(case), plain.query(case))
    assert np.abs(mixed.query(case) - plain.query(case)).max() > 1e-5
