"""The colcon build of this package, and the shell file that activates the result."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from prepare_packages import VirtualEnvironment
from prepare_steps import PreparationError, Stamps, digest_of, run_step

# What is compiled or generated: a change of content builds again. The Python files are installed as links,
# so for them and the other installed files only the set of names counts.
COMPILED = ("CMakeLists.txt", "package.xml", "cmake", "cpp_kernels", "msg", "scripts/prepare_build.py")
LINKED = ("vla_simd_ros", "launch", "config", "resource")


class Build:
    """One colcon build of the package in root, into build/ and install/ (links to the Python sources)."""

    def __init__(self, root: Path, venv: VirtualEnvironment) -> None:
        self._root = root
        self._venv = venv
        self._install = root / "install"

    def prepare(self, stamps: Stamps) -> None:
        if not stamps.current("build-owner", self._venv.identity):
            # A build tree of another interpreter, ROS or folder cannot be continued.
            for folder in ("build", "install"):
                shutil.rmtree(self._root / folder, ignore_errors=True)
            stamps.clear("build")
            stamps.set("build-owner", self._venv.identity)
        compiled = list(_files(self._root, COMPILED))
        names = " ".join(sorted(str(path.relative_to(self._root)) for path in _files(self._root, LINKED)))
        digest = digest_of(self._root, compiled, names)
        if stamps.current("build", digest) and (self._install / "share" / "vla_simd_ros").is_dir():
            return
        stamps.clear("build")
        self._colcon()
        stamps.set("build", digest)

    def _colcon(self) -> None:
        env = self._venv.environment()
        env.update(_compiler(self._venv))
        # Not by its name: where ROS brings colcon, its executable may run under another interpreter.
        colcon = "import sys; from colcon_core.command import main; sys.exit(main())"
        command = [
            str(self._venv.python), "-c", colcon, "--log-base", str(self._root / "log"),
            "build", "--merge-install", "--symlink-install",
            "--base-paths", str(self._root), "--build-base", str(self._root / "build"),
            "--install-base", str(self._install), "--packages-select", "vla_simd_ros",
            "--event-handlers", "console_direct+", "--cmake-args", "-GNinja", "-DCMAKE_BUILD_TYPE=Release",
            f"-DPython3_EXECUTABLE={self._venv.python}",
        ]  # fmt: skip
        run_step("building the package", command, self._root / ".env" / "log" / "build.log", env, self._root)

    def write_environment(self, path: Path) -> None:
        """Write the shell commands that put the virtual environment, ROS and this package in force."""
        python_path = self._install / "lib" / self._venv.site_packages.parent.name / "site-packages"
        lines = ["# Written by scripts/prepare.py; sourced by ./run."]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in self._venv.variables().items()]
        for name, value in (
            ("PATH", f"{self._install}/bin:{self._venv.folder}/bin"),
            ("AMENT_PREFIX_PATH", str(self._install)),
            ("LD_LIBRARY_PATH", f"{self._install}/lib"),
            ("PYTHONPATH", str(python_path)),
        ):
            lines.append(f'export {name}={shlex.quote(value)}"${{{name}:+:${name}}}"')
        lines.append(f"export VLA_SIMD_ENVIRONMENT={shlex.quote(str(self._root))}")
        for name, default in (
            ("ROS_LOG_DIR", self._root / "log" / "ros"),
            ("FASTRTPS_DEFAULT_PROFILES_FILE", self._root / "config" / "fastdds_large_images.xml"),
        ):
            lines.append(f'[[ -n "${{{name}:-}}" ]] || export {name}={shlex.quote(str(default))}')
        temporary = path.with_suffix(".new")
        temporary.write_text("\n".join(lines) + "\n")
        temporary.replace(path)


def _files(root: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        path = root / name
        if path.is_file():
            yield path
        for found in path.rglob("*"):
            if found.is_file() and "__pycache__" not in found.parts and found.suffix not in (".so", ".pyc"):
                yield found


def _compiler(venv: VirtualEnvironment) -> dict[str, str]:
    """The C and C++ compilers to use, when the usual names lead to none."""
    if os.environ.get("CXX") or shutil.which("c++"):
        return {}
    for cc, cxx in (("gcc", "g++"), ("clang", "clang++")):
        if shutil.which(cxx):
            return {"CC": cc, "CXX": cxx}
    raise PreparationError(
        "No C++ compiler was found (looked for c++, g++, clang++). On Debian and Ubuntu: sudo apt install g++"
    )
