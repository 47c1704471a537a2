"""A fresh process that loads a policy and asks it once; see :mod:`vla_simd_ros.benchmarks.loading`.

Started with the arguments as JSON; the last line that it prints is the result, as JSON.
"""

from __future__ import annotations

import time

_STARTED = time.monotonic_ns()


def main(arguments: str) -> None:
    """Load, set the instruction, query, and print where the time and the memory went."""
    import json
    from itertools import pairwise

    given = json.loads(arguments)
    marks = [given["spawned_ns"], _STARTED]
    from vla_simd_ros.executors.settings import EngineSettings
    from vla_simd_ros.inference import Policy

    marks.append(time.monotonic_ns())
    imported = _memory("VmRSS")
    policy = Policy.load(given["checkpoint"], settings=EngineSettings(**given["settings"]))
    marks.append(time.monotonic_ns())
    policy.set_instruction(given["instruction"])
    marks.append(time.monotonic_ns())
    policy.query(policy.blank_observation())
    marks.append(time.monotonic_ns())
    stages_ms = [(end - begin) * 1e-6 for begin, end in pairwise(marks)]
    memory = {"imported_bytes": imported, "peak_bytes": _memory("VmHWM"), "resident_bytes": _memory("VmRSS")}
    print(json.dumps({"stages_ms": stages_ms, **memory, "isa": policy.isa, "threads": policy.threads}))


def _memory(name: str) -> int:
    """Bytes of resident memory: "VmRSS" now, "VmHWM" at most since the process began."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
