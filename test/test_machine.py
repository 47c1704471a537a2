from __future__ import annotations

from pathlib import Path

import pytest

from vla_simd_ros import machine

X86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 151\nmodel name\t: Some CPU @ 2 GHz\n"
PI = "processor\t: 0\nCPU part\t: 0xd0b\n\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0\n"


def test_cpu_model_on_x86_and_arm() -> None:
    assert machine.cpu_model(X86) == "Some CPU @ 2 GHz"
    assert machine.cpu_model(PI) == "Raspberry Pi 5 Model B Rev 1.0"


def test_cpu_model_falls_back_to_the_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.platform, "machine", lambda: "riscv64")
    assert machine.cpu_model("processor : 0\n") == "riscv64"


def test_cpu_details_tell_processors_apart() -> None:
    assert machine.cpu_details(X86) == {"vendor_id": "GenuineIntel", "model": "151"}
    assert machine.cpu_details(PI) == {"CPU part": "0xd0b"}


def test_files_that_are_missing_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("x\n")
    assert machine.read_text(str(tmp_path / "model")) == "x\n"
    assert machine.read_text(str(tmp_path / "missing")) == ""
