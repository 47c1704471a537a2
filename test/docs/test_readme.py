"""The README names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from vla_simd_ros.nodes.outputs import OUTPUTS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    ("node", "file"),
    [
        ("policy_node", "policy_node.yaml"),
        ("chunk_executor_node", "chunk_executor.yaml"),
        ("robot_sim_node", "robot_sim.yaml"),
    ],
)
def test_every_parameter_is_in_the_table_of_its_node(node: str, file: str) -> None:
    parameters = yaml.safe_load((ROOT / "config" / file).read_text())["/**"]["ros__parameters"]
    table = README.split(f"\n| `{node}` | Default |", maxsplit=1)[1].split("\n\n", maxsplit=1)[0]
    missing = [name for name in parameters if f"`{name}`" not in table]
    assert not missing


AUTOWARE = "autoware_planning_msgs/Trajectory"


def test_every_output_is_a_topic_in_the_table() -> None:
    for name, output in OUTPUTS.items():
        kind = output.message_type
        # Autoware's messages are looked for when they are needed.
        message = f"{kind.__module__.split('.')[0]}/{kind.__name__}" if kind else AUTOWARE
        row = f"| `{output.topic}` | `{message}` | executor → robot, with `output: {name}` |"
        assert row in README


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/architecture.md",
        "docs/ros.md",
        "docs/benchmarks.md",
        "docs/benchmarks/README.md",
        "docs/action-supply.md",
    ],
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    targets = [target.split("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text)]
    files = [target for target in targets if target and "://" not in target]
    assert files
    missing = [target for target in files if not ((ROOT / page).parent / target).exists()]
    assert not missing
