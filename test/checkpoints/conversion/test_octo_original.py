"""A converted folder computes what the original computes from the published one.

original_octo.npz holds the original's own results, see scripts/make_original_octo.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import published_octo as published
import pytest

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.conversion.octo import convert_octo
from vla_simd_ros.checkpoints.synthesis.vocabulary import t5_tokenizer
from vla_simd_ros.executors.base import Executor
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.measure import distance
from vla_simd_ros.fidelity.programs import InstructedPolicy, instruct
from vla_simd_ros.inference import Observation

EXPECTED = np.load(Path(__file__).with_name("original_octo.npz"))
CASES = {"whole": 7, "first missing": 7, "six columns": 6}
# The original computes in float32.
BOUND = 1e-5


def policy(folder: Path, columns: int) -> InstructedPolicy:
    """The converted policy with its instruction; statistics that change nothing."""
    neutral = {"action": {"mean": [0.0] * columns, "std": [1.0] * columns}}
    source = published.write(folder / "published", statistics=neutral)
    convert_octo(source, folder / "octo")
    (folder / "octo" / "tokenizer.json").write_text(json.dumps(t5_tokenizer(published.VOCABULARY)))
    made = instruct(load_checkpoint(folder / "octo"), "open the drawer")
    assert made.token_ids is not None
    np.testing.assert_array_equal(made.token_ids, EXPECTED["ids"])
    return made


@pytest.mark.parametrize(
    "executor", [ReferenceExecutor(), SimdExecutor(threads=1)], ids=["float64", "engine"]
)
@pytest.mark.parametrize("name", CASES)
def test_actions_of_the_original(tmp_path: Path, name: str, executor: Executor) -> None:
    given: dict[str, Any] = {key: EXPECTED[f"{name}.{key}"] for key in ("valid", "noise", "actions")}
    case = Case(Observation(published.observation(), valid=given["valid"]), given["noise"], 6)
    made = policy(tmp_path, CASES[name])

    actions = made.run(executor.load(made.compiled), case)["action"]

    assert np.mean(np.abs(given["actions"]) < 5) > 0.9, "few at the bound, where errors do not show"
    assert distance(actions, given["actions"]).relative < BOUND
