"""A plan in the vehicle's frame, placed by complex numbers."""

from __future__ import annotations

import numpy as np

from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Lifetime
from vla_simd_ros.policies.blocks.trajectory import ACTION, STATE, motion, placed_in_map


def test_a_plan_turns_and_moves_with_the_vehicle() -> None:
    b = Builder()
    rows = b.input("rows", (5, len(ACTION)), DType.F32, Lifetime.QUERY)
    state = b.input("state", (1, len(STATE)), DType.F32, Lifetime.QUERY)
    b.output("placed", placed_in_map(b, rows, state, name="placed"))
    b.output("motion", motion(b, state, name="motion"))
    rng = np.random.default_rng(1)
    plan = rng.normal(size=(5, 4)).astype(np.float32)
    yaw = 2.1
    pose = np.array([[30.0, -4.0, yaw, np.cos(yaw), np.sin(yaw), 7.0, 0.5, -0.1]], np.float32)
    values = run_graph(b.graph(), {"rows": plan, "state": pose})
    placed = values[b.graph().outputs["placed"]]
    points = (30 - 4j) + np.exp(1j * yaw) * (plan[:, 0] + 1j * plan[:, 1])
    np.testing.assert_allclose(placed[:, 0] + 1j * placed[:, 1], points, rtol=1e-6)
    np.testing.assert_allclose(placed[:, 2], yaw + plan[:, 2], rtol=1e-6)
    np.testing.assert_array_equal(placed[:, 3], plan[:, 3])
    np.testing.assert_array_equal(values[b.graph().outputs["motion"]], pose[:, 5:])
