"""Whether an hour of work leaves anything behind: memory, threads, files, sockets, checkpoint, temporary files.

The real `headgate run` (collectors, query, exporter) watches simulated brokers at a fixed rate. One broker of
each cluster fills up and is cleaned all the time, so factors and alerts come and go. After half
the time the bench kills all processes and starts them again. A resource leaks if it grows by more than its limit per
hour in both lives, after the warm-up. Seconds are not part of the verdict, so a busy machine may take part.
An hour, and about a core:

    python bench/soak.py --minutes 60 --rate 300 --out build/soak
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bench.growth import LIMITS, Life, Sample, growth, table, verdict, work
from bench.plot import Panel, sheet, write_csv
from bench.processes import Held, command_name, held, tree
from bench.simulated import LOOPBACK, simulated_clusters
from bench.turns import machine
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, ensure_jars
from tests.system.loop import Headgate, await_ready, http_get, write_settings
from tests.system.waiting import eventually

CLUSTERS, BROKERS = 20, 30
PORT = 19_466
MEBIBYTE = 2**20
ROLES = {"java": "JVM", "pyspark": "Python worker"}


def main() -> None:
    """Run the soak, and print the growth; exit status 1 if a resource has grown beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=300.0, help="readings a second")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two samples")
    parser.add_argument("--out", type=Path, default=Path("build/soak"), help="samples.csv and soak.svg go there")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    soak = Soak(given.out / "samples.csv", given.every)
    soak.run(given.rate, 60 * given.minutes)
    (given.out / "soak.svg").write_text(sheet(_panels(soak.samples()), soak.lives[1].began))
    print(f"{machine()}; {given.minutes:g} minutes, {given.rate:g} readings a second asked for\n")
    growths = {name: [growth(life, name) for life in soak.lives] for name in _judged(soak.samples())}
    print("\n".join(table(growths)))
    print("\n" + "\n".join(work(soak.lives)))
    raise SystemExit(verdict(growths, soak.lives))


class Soak:
    """Run two lives of one loop; a kill -9 of all its processes separates them.

    Args:
        file: receives each sample at once.
        every: seconds between two samples.
    """

    def __init__(self, file: Path, every: float) -> None:
        self.lives: list[Life] = []
        self._file = file
        self._every = every
        self._began = time.monotonic()

    def run(self, rate: float, seconds: float) -> None:
        """Run both lives, each for half of the time."""
        jars = ensure_jars("kafka", default_cache_dir())
        with (
            tempfile.TemporaryDirectory(prefix="soak-") as name,
            simulated_clusters(CLUSTERS, BROKERS, filling=True) as ports,
            EmbeddedKafka(Path(name) / "kafka", jars) as kafka,
        ):
            folder = Path(name)
            (folder / "tmp").mkdir()
            settings = _settings(folder, kafka.bootstrap_servers, ports, rate)
            self._began = time.monotonic()
            for _ in range(2):
                self._live(folder, settings, seconds / 2)

    def samples(self) -> list[Sample]:
        """The samples of both lives."""
        return [sample for life in self.lives for sample in life.samples]

    def _live(self, folder: Path, settings: Path, seconds: float) -> None:
        """Run from a start to a kill -9 this long after it was ready."""
        with Headgate(["run", "-s", str(settings)], folder / "run.log", {"TMPDIR": str(folder / "tmp")}) as headgate:
            await_ready(headgate, PORT)
            self.lives.append(Life(self._passed()))
            until, before = self._passed() + seconds, _counters()
            while (left := until - self._passed()) > 0:
                time.sleep(min(self._every, left))
                if headgate.process.poll() is not None:
                    raise SystemExit(f"headgate has ended:\n{headgate.output()[-4000:]}")
                now = _counters()
                self._note({**_held(headgate.process.pid), **_stored(folder), **_work(before, now)})
                before = now

    def _note(self, values: dict[str, float]) -> None:
        self.lives[-1].samples.append((self._passed(), values))
        write_csv(self._file, self.samples())

    def _passed(self) -> float:
        return time.monotonic() - self._began


def _settings(folder: Path, servers: str, ports: Sequence[int], rate: float) -> Path:
    interval = f"{round(1000 * CLUSTERS * BROKERS / rate)}ms"
    watched = {"poll_interval": interval, "timeout": "10s"}
    return write_settings(
        folder / "headgate.yaml",
        kafka={"bootstrap_servers": servers},
        topics={"observed_retention": "10m"},
        clusters={
            f"c{number}": {"kafka": {"bootstrap_servers": f"{LOOPBACK}:{port}", **watched}}
            for number, port in enumerate(ports)
        },
        policies={"throttle": {"soft": {"available_ratio_below": 0.2}, "hard": {"available_ratio_below": 0.1}}},
        data_dir=str(folder / "data"),
        http={"port": PORT},
        stream={"stall_timeout": "5m"},  # seconds are not part of the verdict
    )


# --- samples


def _held(pid: int) -> dict[str, float]:
    by_role: dict[str, Held] = {}
    for each in tree(pid):
        role = "headgate" if each == pid else _role(each)
        by_role[role] = by_role.get(role, Held()).combine(held(each))
    return {
        f"{role}: {what}": value
        for role, total in by_role.items()
        for what, value in (
            ("resident, MiB", total.resident_bytes / MEBIBYTE),
            ("threads", total.threads),
            ("open files", total.files),
            ("sockets", total.sockets),
        )
    }


def _role(pid: int) -> str:
    words = command_name(pid)
    return next((role for sign, role in ROLES.items() if sign in words), "others")


def _stored(folder: Path) -> dict[str, float]:
    data = folder / "data"
    checkpoint, temporary = list(_files(data / "checkpoint")), [*_files(data / "spark-tmp"), *_files(folder / "tmp")]
    return {
        "checkpoint, MiB": sum(checkpoint) / MEBIBYTE,
        "checkpoint, files": len(checkpoint),
        "temporary files": len(temporary),
        "logs, MiB": sum(file.stat().st_size for file in (*data.glob("*.log*"), folder / "run.log")) / MEBIBYTE,
    }


def _files(folder: Path) -> Iterator[int]:
    """Return the size of each file; skip files that disappear meanwhile."""
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield (Path(path) / name).stat().st_size


_RECORDS, _LAG = "headgate_query_input_records_total", "headgate_query_lag_seconds"
_BATCH_SUM, _BATCHES = (f"headgate_query_batch_duration_seconds_{part}" for part in ("sum", "count"))
_AT = "at"


def _counters() -> dict[str, float]:
    """Return the exporter's metrics of the query's work, and the time of the scrape."""
    answer = eventually("the exporter answers", lambda: http_get(PORT, "/metrics"))
    counters = dict.fromkeys((_RECORDS, _LAG, _BATCH_SUM, _BATCHES), 0.0) | {_AT: time.monotonic()}
    for family in text_string_to_metric_families(answer[1]):
        counters |= {sample.name: sample.value for sample in family.samples if sample.name in counters}
    return counters


def _work(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    batches = now[_BATCHES] - before[_BATCHES]
    return {
        "records decided on a second": (now[_RECORDS] - before[_RECORDS]) / (now[_AT] - before[_AT]),
        "batch, ms": 1000 * (now[_BATCH_SUM] - before[_BATCH_SUM]) / batches if batches else 0.0,
        "lag, s": now[_LAG],
    }


# --- results


def _judged(samples: Sequence[Sample]) -> list[str]:
    names = dict.fromkeys(name for _, values in samples for name in values)
    return [name for name in names if any(name.endswith(end) for end in LIMITS)]


def _panels(samples: Sequence[Sample]) -> list[Panel]:
    def select(keep: Callable[[str], bool]) -> dict[str, list[tuple[float, float]]]:
        names = dict.fromkeys(name for _, values in samples for name in values if keep(name))
        return {name: [(at, values[name]) for at, values in samples if name in values] for name in names}

    files = ("checkpoint, files", "temporary files")
    return [
        ("Resident memory, MiB", select(lambda name: name.endswith("resident, MiB"))),
        ("Threads", select(lambda name: name.endswith("threads"))),
        ("Open files and sockets", select(lambda name: name.endswith(("open files", "sockets")))),
        ("Checkpoint, MiB", select(lambda name: name == "checkpoint, MiB")),
        ("Files of the checkpoint, and temporary ones", select(lambda name: name in files)),
        ("A micro-batch, ms", select(lambda name: name == "batch, ms")),
    ]


if __name__ == "__main__":
    main()
