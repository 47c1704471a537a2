"""Which policies have random checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vla_simd_ros.checkpoints.synthesis import features
from vla_simd_ros.checkpoints.synthesis.act import act_recipe
from vla_simd_ros.checkpoints.synthesis.diffusion import diffusion_recipe
from vla_simd_ros.checkpoints.synthesis.driving import driving_options
from vla_simd_ros.checkpoints.synthesis.folder import write_folder
from vla_simd_ros.checkpoints.synthesis.impact import impact_recipe
from vla_simd_ros.checkpoints.synthesis.impact_tokens import impact_tokens_recipe
from vla_simd_ros.checkpoints.synthesis.minddrive import minddrive_recipe
from vla_simd_ros.checkpoints.synthesis.octo import OCTO_OPTIONS, octo_recipe
from vla_simd_ros.checkpoints.synthesis.openvla import OPENVLA_OPTIONS, openvla_recipe
from vla_simd_ros.checkpoints.synthesis.options import OptionError, Options
from vla_simd_ros.checkpoints.synthesis.orion import orion_recipe
from vla_simd_ros.checkpoints.synthesis.pi0_fast import pi0_fast_recipe
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.smolvla import smolvla_recipe
from vla_simd_ros.checkpoints.synthesis.turbovla import turbovla_recipe, turbovla_so101_recipe

_RECIPES: dict[str, Callable[[Options], Recipe]] = {
    "act": act_recipe,
    "diffusion": diffusion_recipe,
    "impact": impact_recipe,
    "impact_tokens": impact_tokens_recipe,
    "smolvla": smolvla_recipe,
    "turbovla": turbovla_recipe,
    "turbovla_so101": turbovla_so101_recipe,
    "octo": octo_recipe,
    "minddrive": minddrive_recipe,
    "orion": orion_recipe,
    "openvla": openvla_recipe,
    "pi0_fast": pi0_fast_recipe,
}
POLICY_TYPES = tuple(_RECIPES)
SCALED_DOWN = ("minddrive", "orion", "openvla", "pi0_fast")
"""Policies that are smaller than the published ones unless full size is asked for."""


def default_options(policy: str, full_size: bool = False) -> Options:
    """The robot that ``policy`` has where nothing else is asked for."""
    if policy in ("minddrive", "orion"):
        return driving_options(full_size)
    if policy == "openvla":
        return replace(OPENVLA_OPTIONS, full_size=full_size)
    return OCTO_OPTIONS if policy == "octo" else Options(full_size=full_size)


def make_checkpoint(policy: str, folder: str | Path, options: Options | None = None) -> int:
    """Write a random checkpoint of ``policy`` to ``folder``; returns the number of parameters.

    Raises `OptionError` for an unknown policy, an option that it cannot have, or a folder in use.
    """
    if policy not in _RECIPES:
        raise OptionError(f"policy '{policy}' is unknown, expected one of {', '.join(POLICY_TYPES)}")
    chosen = options or default_options(policy)
    recipe = _RECIPES[policy](chosen)
    declared = recipe.config["input_features"] | recipe.config.get("output_features", {})
    write_folder(Path(folder), recipe, features.statistics(chosen.seed, declared), chosen.dtype)
    return sum(tensor.size for tensor in recipe.tensors.values())
