"""One policy, three hosts: Headgate's query, Quix Streams with RocksDB and changelog, and a bare confluent-kafka loop.

The same step of the same throttle policy (`streaming/operator.py`), one after the other on one broker: latency at
several rates, processor time and memory, and what a kill -9 in the middle costs. Quix Streams is installed into an
environment of its own in the cache, once. About eight minutes:

    python bench/peers.py
    python bench/peers.py --only quix loop --rates 100 --seconds 10
    python bench/peers.py --no-rates                                        the kills alone, two minutes
    python bench/peers.py --no-kill
"""

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.loop import Appended, Throttled, latencies, loop_kafka, quantile
from bench.peer_loop import POLICY
from bench.processes import cpu_seconds, kill_tree, resident_bytes
from bench.turns import ROOT, Figures, table
from deploy.settings.folders import default_cache_dir
from tests.eager import EAGER
from tests.system.loop import write_settings
from tests.system.waiting import eventually, within

QUIX = "quixstreams==3.28.1"
HERE = Path(__file__).parent
CONTENDERS = ("loop", "quix", "headgate")
KILL_RATE, KILL_SECONDS = 200, 20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--rates", type=int, nargs="+", default=[1, 100, 1000], help="observations a second")
    parser.add_argument("--no-rates", dest="rates", action="store_const", const=[], help="only kill")
    parser.add_argument("--no-kill", dest="kill", action="store_false", help="only rates")
    parser.add_argument("--seconds", type=int, default=30, help="measured time for each rate")
    parser.add_argument("--warmup", type=int, default=20, help="seconds that do not count")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    with loop_kafka(*given.only) as (folder, servers):
        columns: dict[str, Figures] = {}
        for contender in given.only:
            columns[contender] = Contest(contender, folder, servers).measure(given)
            print(contender, json.dumps(columns[contender]), file=sys.stderr, flush=True)
    named = {f"{name}: {what}": value for name, figures in columns.items() for what, value in figures.items()}
    print(json.dumps(named) if given.json else table(columns))


class Contest:
    """One contender with its own topics and folder."""

    def __init__(self, contender: str, folder: Path, servers: str) -> None:
        self._folder = folder / contender
        self._folder.mkdir()
        self._topics = Throttled(servers, contender)
        self._command = _command(contender, self._folder, servers)

    def measure(self, given: argparse.Namespace) -> Figures:
        """Measure everything."""
        figures: Figures = {}
        if given.rates:
            with self._running() as process:
                self._warm_up(given.warmup, process)
                for rate in given.rates:
                    figures |= self._measure(rate, given.seconds, process.pid)
                figures["resident, MiB"] = resident_bytes(process.pid) / 2**20
        return figures | (self._killed() if given.kill else {})

    def _warm_up(self, seconds: int, process: subprocess.Popen[bytes]) -> None:
        end = self._topics.marks()[1]
        self._topics.produce(100, max(1, seconds))

        def has_decided() -> bool:
            if process.poll() is not None:
                raise SystemExit(f"{self._command} has ended:\n{(self._folder / 'log').read_text()[-2000:]}")
            return self._topics.marks()[1] != end

        eventually("a decision", has_decided)

    def _measure(self, rate: int, seconds: int, pid: int) -> Figures:
        marks, cpu = self._topics.marks(), cpu_seconds(pid)
        self._topics.produce(rate, seconds)
        millis = self._topics.await_latencies(marks)
        cpu = cpu_seconds(pid) - cpu
        found = {f"{rate}/s, p{percent}, ms": quantile(millis, percent) for percent in (50, 99)}
        return found | {f"{rate}/s, CPU seconds a million observations": 1e6 * cpu / (rate * seconds)}

    def _killed(self) -> Figures:
        """Kill it in the middle of a load and start it again at once."""
        load = threading.Thread(target=self._topics.produce, args=(KILL_RATE, KILL_SECONDS))
        with self._running() as process:
            self._warm_up(2, process)
            marks = self._topics.marks()
            load.start()
            time.sleep(KILL_SECONDS / 2)
            kill_tree(process.pid)
            at_kill_ms = time.time() * 1000
        with self._running():
            load.join()
            within(240, lambda: latencies(*self._topics.since(marks)))
            time.sleep(3)
        return after_a_kill(*self._topics.since(marks), at_kill_ms)

    @contextmanager
    def _running(self) -> Iterator[subprocess.Popen[bytes]]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (
            (self._folder / "log").open("ab") as log,
            subprocess.Popen(self._command, stdout=log, stderr=log, env=environment, cwd=self._folder) as process,
        ):
            try:
                yield process
            finally:
                kill_tree(process.pid)


def after_a_kill(observed: Sequence[Appended], decided: Sequence[Appended], at_kill_ms: float) -> Figures:
    """Compare the ids of observations and decisions."""
    decisions = [(each.event["id"], each.event["data"], each.appended_ms) for each in decided]
    times = Counter(id_ for id_, _, _ in decisions)
    ids_and_evidence = {(id_, data["evidence"][0]) for id_, data, _ in decisions}
    places = {each.event["id"]: number for number, each in enumerate(observed)}
    reached: dict[str, int] = {}
    for _, data, _ in decisions:
        reached[data["cluster"]] = max(reached.get(data["cluster"], -1), places.get(data["evidence"][0], -1))
    later = [(data, at_ms) for _, data, at_ms in decisions if at_ms > at_kill_ms]
    return {
        "killed: to the next decision, s": (min((at for _, at in later), default=float("nan")) - at_kill_ms) / 1000,
        "killed: observations never decided on": sum(
            number > reached.get(each.event["data"]["cluster"], -1) for number, each in enumerate(observed)
        ),
        "killed: decisions said again, same id": len(decisions) - len(times),
        "killed: decisions said again, other id": len(ids_and_evidence) - len({used for _, used in ids_and_evidence}),
        "killed: clusters whose history was lost": len(
            {data["cluster"] for data, _ in later if data["previous_factor"] is None}
        ),
    }


def _command(contender: str, folder: Path, servers: str) -> list[str]:
    if contender == "quix":
        return [str(_quix_python()), str(HERE / "peer_quix.py"), servers, contender, str(folder / "state")]
    if contender == "loop":
        return [sys.executable, str(HERE / "peer_loop.py"), servers, contender]
    settings = write_settings(
        folder / "headgate.yaml",
        kafka={"bootstrap_servers": servers},
        topics={"prefix": contender},
        clusters={f"c{number}": {"kafka": {"bootstrap_servers": servers}} for number in range(10)},
        policies={POLICY: EAGER},
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
    main()
