"""A node's parameters from a ROS 2 parameter file, without ROS."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from vla_simd_ros.nodes.param import Param, checked


class ParameterFileError(ValueError):
    """A file that is no parameter file, or has none of the node's parameters."""


def parameters_from(path: Path | None, node: str, specs: Sequence[Param]) -> dict[str, Any]:
    """The values of a node's parameters: from a file where one is given, else the defaults.

    Of several sections those for all nodes come first and those of the node after them.

    Raises:
        ParameterFileError: the file cannot be read as parameters, or names a parameter that there is not.
        ParameterError: a value does not fit.
    """
    given: dict[str, Any] = {}
    if path is not None:
        for section in _sections(path, node):
            given.update(section)
    given.pop("use_sim_time", None)
    unknown = given.keys() - {spec.name for spec in specs}
    if unknown:
        raise ParameterFileError(f"{path}: {node} has no parameter {sorted(unknown)[0]}")
    return checked(specs, given)


def _sections(path: Path, node: str) -> list[dict[str, Any]]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParameterFileError(f"{path}: no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise ParameterFileError(f"{path}: expected sections such as '{node}', with ros__parameters in them")
    found = []
    for name in ("/**", node, f"/{node}"):
        section = document.get(name)
        if section is None:
            continue
        if not isinstance(section, dict) or not isinstance(section.get("ros__parameters"), dict):
            raise ParameterFileError(f"{path}: section '{name}': expected ros__parameters with values")
        found.append(section["ros__parameters"])
    if not found:
        raise ParameterFileError(
            f"{path}: has the sections {', '.join(map(str, document))}, expected '/**' or '{node}'"
        )
    return found
