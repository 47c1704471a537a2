"""The machine and the software that a measurement was made with."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from vla_simd_ros import __version__
from vla_simd_ros.machine import cpu_details, cpu_model, read_text

_BUSY = 0.3


def describe_machine() -> dict[str, Any]:
    """Everything about machine and software that a repetition would want to match."""
    return {
        "cpu": cpu_model(),
        "cpu_details": cpu_details(),
        "cores_online": os.cpu_count(),
        "cores_allowed": sorted(os.sched_getaffinity(0)),
        "governor": read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or "unknown",
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


def describe_file(path: Path) -> dict[str, str]:
    """The name of a model's file and its SHA-256."""
    return {"file": path.name, "sha256": _sha256(path)}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return digest.hexdigest()
