"""Share of a core that an idle loop takes: `headgate run` with one watched cluster, read every 10 s.

python bench/idle.py
python bench/idle.py --against HEAD~20
"""

import argparse
import time

from bench.loop import loop_kafka
from bench.processes import cpu_seconds
from bench.turns import Figures, run
from tests.system.loop import Headgate, await_ready, write_settings

PORT = 19_464


def measure(given: argparse.Namespace) -> Figures:
    """Measure the share of one core of the process and all its children: query, collector, exporter."""
    with loop_kafka() as (folder, loop):
        servers = {"bootstrap_servers": loop}
        settings = write_settings(
            folder / "headgate.yaml",
            kafka=servers,
            clusters={"watched": {"kafka": {**servers, "poll_interval": "10s"}}},
            policies={"throttle": {"soft": {"available_ratio_below": 0.01}}},
            data_dir=str(folder / "data"),
            http={"port": PORT},
        )
        with Headgate(["run", "-s", str(settings)], folder / "run.log") as headgate:
            await_ready(headgate, PORT)
            time.sleep(given.settle)
            before, began = cpu_seconds(headgate.process.pid), time.monotonic()
            time.sleep(given.seconds)
            used = cpu_seconds(headgate.process.pid) - before
            cores = used / (time.monotonic() - began)
            headgate.stop()
    return {"idle loop, share of a core": cores}


if __name__ == "__main__":
    run(measure, seconds=(60, "measured time"), settle=(30, "seconds after it is ready that do not count"))
