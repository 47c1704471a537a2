from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from vla_simd_ros.benchmarks import conditions

X86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 151\nmodel name\t: Some CPU @ 2 GHz\n"
PI = "processor\t: 0\nCPU part\t: 0xd0b\n\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0\n"


def test_cpu_model_on_x86_and_arm() -> None:
    assert conditions.cpu_model(X86) == "Some CPU @ 2 GHz"
    assert conditions.cpu_model(PI) == "Raspberry Pi 5 Model B Rev 1.0"


def test_cpu_model_falls_back_to_the_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions.platform, "machine", lambda: "riscv64")
    assert conditions.cpu_model("processor : 0\n") == "riscv64"


def test_cpu_details_tell_processors_apart() -> None:
    assert conditions.cpu_details(X86) == {"vendor_id": "GenuineIntel", "model": "151"}
    assert conditions.cpu_details(PI) == {"CPU part": "0xd0b"}


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
