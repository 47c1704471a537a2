"""This package's MindDrive in PyTorch, independent of the graph."""

from __future__ import annotations

from vla_simd_ros.fidelity.torch_driving import reference

__all__ = ["reference"]
