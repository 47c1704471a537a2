"""Builds the engine's extension module through its CMake project, for `pip install .` without ROS."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


class CMakeBuild(build_ext):
    """Configures and builds cpp_kernels/, with the module placed where setuptools expects it."""

    def build_extension(self, ext: Extension) -> None:
        module = Path(self.get_ext_fullpath(ext.name)).resolve()
        build = Path(self.build_temp).resolve()
        # The cache of an earlier call names tools of pip's own build environment, which is gone by now.
        shutil.rmtree(build, ignore_errors=True)
        build.mkdir(parents=True)
        configure = [
            "cmake", "-S", str(ROOT / "cpp_kernels"), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release",
            "-DBUILD_TESTING=OFF", f"-DPython3_EXECUTABLE={sys.executable}",
            f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={module.parent}",
        ]  # fmt: skip
        subprocess.run(configure, check=True)
        # Without a number make starts all compilers at once, more than the memory of a small robot holds.
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
        compile_all = ["cmake", "--build", str(build), "--target", "_engine", "--parallel", jobs]
        subprocess.run(compile_all, check=True)
        if not module.exists():
            raise RuntimeError(f"the build of the extension module did not produce {module}")


setup(
    ext_modules=[Extension("vla_simd_ros._engine", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
