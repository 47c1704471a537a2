"""Files that the package installs beside its Python modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def package_folder(name: str) -> Path:
    """A folder of the installed package (config, msg), else that of the sources; it need not exist."""
    if importlib.util.find_spec("ament_index_python") is not None:
        from ament_index_python.packages import PackageNotFoundError, get_package_share_directory

        try:
            return Path(get_package_share_directory("vla_simd_ros")) / name
        except (PackageNotFoundError, OSError):
            pass  # not installed, or no installation has been sourced
    return Path(__file__).resolve().parents[1] / name
