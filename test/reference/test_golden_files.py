"""The golden files are what their script makes of the references that are installed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints.synthesis import Camera, Options

ROOT = Path(__file__).parent.parent.parent


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("make_golden", ROOT / "scripts" / "make_golden.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Data classes look their module up while it runs.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()


def recipe_of(stored: Any) -> tuple[dict[str, Any], Options]:
    """What a recipe says, and its options: those that it was written without have their defaults."""
    recipe = json.loads(str(stored))
    given = recipe.pop("options")
    cameras = tuple(Camera(**camera) for camera in given.pop("cameras"))
    return recipe, Options(cameras=cameras, **given)


def test_every_case_has_its_file() -> None:
    assert {path.stem for path in SCRIPT.FOLDER.glob("*.npz")} == set(SCRIPT.CASES)


@pytest.mark.parametrize("name", SCRIPT.CASES)
def test_golden_file(name: str) -> None:
    stored = np.load(SCRIPT.FOLDER / f"{name}.npz")
    made = SCRIPT.arrays(SCRIPT.CASES[name])

    assert set(stored) == set(made)
    for key in stored:
        if key.startswith("actions_"):
            # Another CPU rounds otherwise.
            bound = 3e-6 if key.endswith("32") else 1e-12
            np.testing.assert_allclose(made[key], stored[key], rtol=0, atol=bound * np.abs(stored[key]).max())
        elif key == "recipe":
            assert recipe_of(made[key]) == recipe_of(stored[key])
        else:
            np.testing.assert_array_equal(made[key], stored[key])
