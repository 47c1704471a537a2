#!/bin/sh
# Build the engine's Python module in place, for work on the engine: scripts/build_engine.sh [python]
# The package's own build (./run) does the same in its install folder.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python3}
build="$root/build/engine"
cmake -S "$root/cpp_kernels" -B "$build" -G Ninja -DPython_EXECUTABLE="$(command -v "$python")"
cmake --build "$build"
# Replaced in one step, so that a program which starts meanwhile finds the old one or the new one.
for module in "$build"/bindings/_engine.*.so; do
  cp "$module" "$root/vla_simd_ros/.new_engine"
  mv "$root/vla_simd_ros/.new_engine" "$root/vla_simd_ros/$(basename "$module")"
done
