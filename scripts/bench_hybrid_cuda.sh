#!/usr/bin/env bash
# Tables of policies shared between a CUDA device and this machine's CPU, in less than 8 minutes:
#
#   scripts/bench_hybrid_cuda.sh [DEVICE] [FOLDER]
#
# DEVICE is cuda:0 unless said otherwise; "cpu" goes through everything on a machine without one. FOLDER
# (out/hybrid-cuda) gets, for each policy, the table of all cuts, their costs, the pipeline against its
# formula, and the live run with its picture. Needs the engine (scripts/build_engine.sh) and, in the
# interpreter that PYTHON names (python3), PyTorch and the packages of scripts/requirements-run.txt and
# scripts/requirements-hybrid.txt; matplotlib for the pictures. Nothing is installed or downloaded.
# QUICK=1 takes small policies and few frames, to see in a minute that every step works.
set -euo pipefail

device="${1:-cuda:0}"
out="${2:-out/hybrid-cuda}"
python="${PYTHON:-python3}"
root="$(cd "$(dirname "$0")/.." && pwd)"
instruction="turn left at the next crossing"
# The last step has to be done by then, in seconds.
limit="${LIMIT_S:-470}"
started=$SECONDS

cd "$root"
# Before anything is written: is there what it is all about?
"$python" -c 'import sys
try:
    from vla_simd_ros.executors.torch_device import make_device
    make_device(sys.argv[1])
except (ImportError, ValueError) as error:
    sys.exit(f"bench_hybrid_cuda: {error}: nothing was measured")' "$device"
cd - >/dev/null
mkdir -p "$out"
out="$(cd "$out" && pwd)"
cd "$root"
checkpoints="$(mktemp -d)"
trap 'rm -rf "$checkpoints"' EXIT

left() { echo $((limit - (SECONDS - started))); }

# step NAME COMMAND...: its output in NAME.txt; one that fails or would take too long is reported.
failed=0
step() {
  local name="$1"
  shift
  local seconds
  seconds="$(left)"
  if ((seconds < 5)); then
    echo "$name: left out, $limit s are over" | tee "$out/$name.txt"
    failed=1
    return
  fi
  echo "$name ($((SECONDS - started)) s)"
  local status=0
  timeout "$seconds" "$@" >"$out/$name.txt" 2>"$out/$name.log" || status=$?
  if ((status != 0)); then
    echo "$name: status $status, see $out/$name.log" >&2
    failed=1
  fi
}

# checkpoint NAME POLICY [OPTION]...: random weights of a policy, for a step that follows.
checkpoint() {
  local name="$1"
  shift
  step "$name-checkpoint" "$python" -m vla_simd_ros.cli make-checkpoint "$@" --out "$checkpoints/$name"
}

# split NAME REPEATS FRAMES LIVE [OPTION]...: one policy's checkpoint NAME.
split() {
  local name="$1" repeats="$2" frames="$3" live="$4"
  shift 4
  step "$name" "$python" -m vla_simd_ros.cli split "$checkpoints/$name" --prefix torch --device "$device" \
    --cpu-threads "$threads" --repeats "$repeats" --frames "$frames" --live "$live" --loads 0,0.5,0,0.7,0 \
    --instruction "$instruction" --save-costs "$out/$name-costs.json" --plan "$out/$name-plan.json" \
    --out "$out/$name-live" "$@"
}

# Half the cores for the suffix, so that some are left for the process that loads them and for the rest.
cores="$("$python" -c 'import os; print(len(os.sched_getaffinity(0)))')"
threads=$((cores > 3 ? cores / 2 : 1))

{
  echo "device $device, $cores CPUs, $threads threads of the suffix"
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  fi
  "$python" -c 'import platform, torch; print("Python", platform.python_version(), "PyTorch", torch.__version__)'
  "$python" -c 'from vla_simd_ros.machine import cpu_model; print(cpu_model())'
} | tee "$out/machine.txt"

if [[ -n "${QUICK:-}" ]]; then
  for policy in minddrive orion; do
    checkpoint "$policy" "$policy" --image-size 64x128 --decoder-layers 4 --encoder-layers 3 \
      --set query_config.num_queries=32
    split "$policy" 1 4 2
  done
  echo "done after $((SECONDS - started)) s: $out"
  exit "$failed"
fi
checkpoint minddrive minddrive
split minddrive 5 30 8
checkpoint orion orion
split orion 5 30 5
if [[ "$device" != cpu ]]; then
  # As published, on a device that computes its prefix in a fraction of a second.
  checkpoint minddrive-full minddrive --full-size --dtype bf16
  split minddrive-full 2 6 10 --gpu-memory 8GiB
  rm -rf "$checkpoints/minddrive-full"
  checkpoint smolvla smolvla --dtype bf16
  split smolvla 2 6 5
fi

echo "done after $((SECONDS - started)) s: $out"
exit "$failed"
