"""The machine and the software that a measurement was made with."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from vla_simd_ros import __version__

_BUSY = 0.3


def cpu_model(cpuinfo: str | None = None) -> str:
    """The processor's name, from the text of /proc/cpuinfo or, where it gives none, its architecture."""
    if cpuinfo is None:
        cpuinfo = _read("/proc/cpuinfo")
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


def cpu_details(cpuinfo: str | None = None) -> dict[str, str]:
    """Family, model and stepping, which tell apart processors that share a name (virtual ones do)."""
    if cpuinfo is None:
        cpuinfo = _read("/proc/cpuinfo")
    names = ("vendor_id", "cpu family", "model", "stepping", "cache size", "CPU part")
    found = {name: re.search(rf"^{name}\s*:\s*(.+)$", cpuinfo, re.MULTILINE) for name in names}
    return {name: match.group(1).strip() for name, match in found.items() if match}


def describe_machine() -> dict[str, Any]:
    """Everything about machine and software that a repetition would want to match."""
    return {
        "cpu": cpu_model(),
        "cpu_details": cpu_details(),
        "cores_online": os.cpu_count(),
        "cores_allowed": sorted(os.sched_getaffinity(0)),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or "unknown",
        "load_average_before": round(os.getloadavg()[0], 2),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "vla_simd_ros": __version__,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["vla_simd", *sys.argv[1:]]),
    }


def busy_warning() -> str | None:
    """A sentence when other work seems to run on this machine, which spoils measurements."""
    load = os.getloadavg()[0]
    if load <= _BUSY:
        return None
    return f"the load average is {load:.2f}: other work on this machine disturbs the measurement"


def describe_checkpoint(folder: Path) -> dict[str, str]:
    """The folder's name and the SHA-256 of its weights and configuration."""
    return {
        "folder": folder.name,
        **{f"sha256 {name}": _sha256(folder / name) for name in ("config.json", "model.safetensors")},
    }


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return digest.hexdigest()


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
