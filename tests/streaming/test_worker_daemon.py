"""What Spark's daemon of Python workers loads before it forks them."""

import subprocess
import sys

_LOADED = """
import os, sys
import streaming.worker_daemon
print(len(os.listdir("/proc/self/task")))
print(*(name in sys.modules for name in ("pyspark.worker", "policies.registry", "streaming.operator")))
"""


def test_it_has_what_workers_need_and_no_thread_which_a_fork_would_lose() -> None:
    done = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True", "True", "True"]
