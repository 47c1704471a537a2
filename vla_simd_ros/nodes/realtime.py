"""Real-time scheduling of this process, so that control steps come on time beside busy processes."""

from __future__ import annotations

import os
from pathlib import Path

MOST_PRIORITY = 99
_THREADS = Path("/proc/self/task")


def schedule(priority: int) -> None:
    """Put every thread of this process under SCHED_FIFO at a priority of 1 to 99, or, at 0, back under
    ordinary scheduling. Threads started later take after the one that starts them.

    Raises:
        OSError: the system does not permit it, or has no such scheduling; says what would help.
    """
    if not hasattr(os, "sched_setscheduler"):
        raise OSError("this system has no real-time scheduling")
    policy = os.SCHED_FIFO if priority else os.SCHED_OTHER
    for thread in _THREADS.iterdir():
        try:
            os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))
        except ProcessLookupError:
            continue  # it has just ended
        except PermissionError as error:
            raise OSError(
                f"priority {priority} is not permitted to this user: a line '<user> - rtprio {priority}' in "
                "/etc/security/limits.conf permits it"
            ) from error
