#!/usr/bin/env bash
# Prints the path of the Python that the environment is made with.
#
# With ROS 2 sourced it is the interpreter ROS was built for; without, the one that the environment was made
# with before, or else the first suitable one on the PATH. PYTHON=/path/to/python overrides the choice.
set -euo pipefail

# The interpreter behind a name, or nothing when it is missing, too old or too new. Asking it for
# sys.executable leads past version-manager shims.
suitable() {
  "$1" -c '
import sys
if (3, 10) <= sys.version_info[:2] <= (3, 13):
    print(sys.executable)
' 2>/dev/null || true
}

# Of the suitable ones, those that can also compile extension modules are preferred.
has_headers() {
  "$1" -c '
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
' 2>/dev/null
}

remembered=$(cat "$(dirname -- "${BASH_SOURCE[0]}")/../.env/python" 2>/dev/null || true)
candidates=(${remembered:+"$remembered"} python3 python3.12 python3.11 python3.13 python3.10 /usr/bin/python3)
if [[ -n "${PYTHON:-}" ]]; then
  candidates=("$PYTHON")
elif [[ -n "${ROS_DISTRO:-}" ]]; then
  candidates=(python3)
fi

headless=""
for candidate in "${candidates[@]}"; do
  found=$(suitable "$candidate")
  [[ -n "$found" ]] || continue
  if has_headers "$found"; then
    echo "$found"
    exit 0
  fi
  headless=${headless:-$found}
done

if [[ -n "$headless" ]]; then
  echo "Python at $headless has no header files (Python.h), which the build needs." >&2
  echo "On Debian and Ubuntu: sudo apt install python3-dev python3-venv" >&2
else
  echo "No Python between 3.10 and 3.13 was found (looked for: ${candidates[*]})." >&2
  echo "On Debian and Ubuntu: sudo apt install python3 python3-dev python3-venv" >&2
fi
exit 1
