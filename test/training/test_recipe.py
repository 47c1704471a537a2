from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from vla_simd_ros.training.recipe import Recipe, RecipeError, TokenRecipe


def test_a_recipe_survives_its_json() -> None:
    recipe = Recipe(steps=7, decay_steps=2, held_out=0.25, precision="bf16")
    assert Recipe.from_json(asdict(recipe)) == recipe
    assert Recipe.from_json({"held_out": 0}) == Recipe(held_out=0)


def test_the_rate_rises_stays_and_falls() -> None:
    recipe = Recipe(steps=10, warmup_steps=3, decay_steps=4)
    rates = [recipe.learning_rate(step) for step in range(10)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])
    assert {Recipe(steps=5, warmup_steps=0).learning_rate(step) for step in range(5)} == {1.0}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"step": 1}, "no setting 'step', expected one of steps, batch_size"),
        ({"steps": 0}, "steps is 0, expected 1 or more"),
        ({"steps": 2.5}, "steps is 2.5, expected a value like 100000"),
        ({"steps": True}, "steps is True, expected a value like"),
        ({"held_out": 1.0}, "held_out is 1.0, expected less than 1"),
        ({"state_noise": -1}, "state_noise is -1, expected 0 or more"),
        ({"state_noise": float("nan")}, "state_noise is nan, expected 0 or more"),
        ({"precision": "int8"}, "precision is 'int8', expected one of fp32, bf16"),
    ],
)
def test_what_cannot_be_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Recipe.from_json(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"consistency": 0.0, "omega": 0.0}, "consistency and omega are both 0, expected a weight above 0"),
        ({"fresh_guesses": 0.6}, "fresh_guesses and repeated_guesses are 0.6 and 0.5, expected shares"),
        ({"action_quantile": 0.5}, "action_quantile is 0.5, expected less than 0.5"),
        ({"omega": -1.0}, "omega is -1.0, expected 0 or more"),
        ({"steps": 0}, "steps is 0, expected 1 or more"),
    ],
)
def test_what_cannot_be_of_tokens_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        TokenRecipe.from_json(values)
    assert TokenRecipe.from_json({"steps": 3, "omega": 2}) == TokenRecipe(steps=3, omega=2)
