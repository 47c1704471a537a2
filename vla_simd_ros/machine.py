"""The processor that this runs on, as Linux describes it."""

from __future__ import annotations

import platform
import re
from pathlib import Path


def cpu_model(cpuinfo: str | None = None) -> str:
    """The processor's name, from the text of /proc/cpuinfo or, where it gives none, its architecture."""
    if cpuinfo is None:
        cpuinfo = read_text("/proc/cpuinfo")
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


def cpu_details(cpuinfo: str | None = None) -> dict[str, str]:
    """Family, model and stepping, which tell apart processors that share a name (virtual ones do)."""
    if cpuinfo is None:
        cpuinfo = read_text("/proc/cpuinfo")
    names = ("vendor_id", "cpu family", "model", "stepping", "cache size", "CPU part")
    found = {name: re.search(rf"^{name}\s*:\s*(.+)$", cpuinfo, re.MULTILINE) for name in names}
    return {name: match.group(1).strip() for name, match in found.items() if match}


def read_text(path: str) -> str:
    """What a file of the kernel says; empty where there is no such file."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
