"""One policy, two hosts: Headgate's query, and Quix Streams with RocksDB and changelog.

The same step of the same throttle policy (`streaming/operator.py`), one after the other on one broker: latency at
several rates, processor time and memory. Quix Streams is installed into an environment of its own in the cache, once.
About five minutes:

    python bench/peers.py
    python bench/peers.py --only quix --rates 100 --seconds 10
"""

import argparse
import os
import subprocess
import sys
import sysconfig
from contextlib import ExitStack
from pathlib import Path

from bench.loop import Throttled, loop_kafka, quantile
from bench.processes import cpu_seconds, kill_tree, resident_bytes
from bench.turns import ROOT, Figures, run
from deploy.settings.application import default_cache_dir
from tests.eager import EAGER
from tests.system.loop import write_settings
from tests.system.waiting import eventually

QUIX = "quixstreams==3.28.1"
HOSTS = ("quix", "headgate")


def measure(given: argparse.Namespace) -> Figures:
    """Measure each host."""
    with loop_kafka(*given.only) as (folder, servers):
        of = {host: _measure(host, folder / host, servers, given) for host in given.only}
    return {f"{host}: {what}": value for host, figures in of.items() for what, value in figures.items()}


def _measure(host: str, folder: Path, servers: str, given: argparse.Namespace) -> Figures:
    """Measure one host, with its own topics and folder, at each rate."""
    folder.mkdir()
    topics, figures = Throttled(servers, host), Figures()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        (folder / "log").open("ab") as log,
        subprocess.Popen(
            _command(host, folder, servers), stdout=log, stderr=log, env=environment, cwd=folder
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(kill_tree, process.pid)

        def has_decided() -> bool:
            if process.poll() is not None:
                raise SystemExit(f"{host} has ended:\n{(folder / 'log').read_text()[-2000:]}")
            return any(topics.marks()[1].values())

        topics.produce(100, max(1, given.warmup))
        eventually("a decision", has_decided)
        for rate in given.rates:
            marks, cpu = topics.marks(), cpu_seconds(process.pid)
            topics.produce(rate, given.seconds)
            millis = topics.await_latencies(marks)
            cpu = cpu_seconds(process.pid) - cpu
            figures |= {f"{rate}/s, p{percent}, ms": quantile(millis, percent) for percent in (50, 99)}
            figures[f"{rate}/s, CPU seconds a million observations"] = 1e6 * cpu / (rate * given.seconds)
        figures["resident, MiB"] = resident_bytes(process.pid) / 2**20
    return figures


def _command(host: str, folder: Path, servers: str) -> list[str]:
    if host == "quix":
        return [str(_quix_python()), str(ROOT / "bench" / "peer_quix.py"), servers, host, str(folder / "state")]
    settings = write_settings(
        folder / "headgate.yaml",
        kafka={"bootstrap_servers": servers},
        topics={"prefix": host},
        clusters={f"c{number}": {"kafka": {"bootstrap_servers": servers}} for number in range(10)},
        policies={"throttle": EAGER},
        data_dir=str(folder / "data"),
        http={"port": 19_467},
    )
    return [sys.executable, "-m", "deploy.cli", "decide", "-s", str(settings)]


def _quix_python() -> Path:
    """Return the interpreter of an environment with Quix Streams, made once; other packages are those of this one."""
    folder = default_cache_dir().parent / f"bench-{QUIX.replace('==', '-')}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"making an environment with {QUIX} in {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", QUIX], check=True)
        (folder / "ready").touch()
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "headgate.pth").write_text(sysconfig.get_path("purelib"))
    return python


if __name__ == "__main__":
    run(
        measure,
        only=([*HOSTS], "one of them"),
        rates=([1, 100, 1000], "observations a second"),
        seconds=(30, "measured time for each rate"),
        warmup=(20, "seconds that do not count"),
    )
