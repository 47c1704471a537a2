#!/bin/sh
# Build the engine's Python module in place, for work on the engine: scripts/build_engine.sh [python]
# The package's own build (./run) does the same in its install folder.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python3}
build="$root/build/engine"
cmake -S "$root/cpp_kernels" -B "$build" -G Ninja -DPython_EXECUTABLE="$(command -v "$python")"
cmake --build "$build"
rm -f "$root"/vla_simd_ros/_engine.*.so
cp "$build"/bindings/_engine.*.so "$root/vla_simd_ros/"
