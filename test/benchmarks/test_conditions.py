from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from vla_simd_ros.benchmarks import conditions


def test_machine_is_described_in_full() -> None:
    machine = conditions.describe_machine()
    assert machine["cores_allowed"] and machine["cpu"] and machine["kernel"] and machine["command"]


@pytest.mark.parametrize(("load", "warned"), [(0.0, False), (0.3, False), (1.7, True)])
def test_other_work_is_warned_of(load: float, warned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions.os, "getloadavg", lambda: (load, 0.0, 0.0))
    warning = conditions.busy_warning()
    assert (warning is not None) == warned
    assert warning is None or "1.70" in warning


def test_checkpoint_is_known_by_its_digests(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    described = conditions.describe_checkpoint(tmp_path)
    assert described["folder"] == tmp_path.name
    assert described["sha256 model.safetensors"] == hashlib.sha256(b"weights").hexdigest()
