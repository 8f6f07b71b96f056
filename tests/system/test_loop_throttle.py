"""The whole loop on real brokers with small real disks, filled by real producers."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.kafka import EmbeddedKafka
from tests.system.brokers import kill_broker
from tests.system.disks import small_disk, why_not_mountable
from tests.system.loop import Headgate, Topic, await_ready, write_settings
from tests.system.waiting import DEADLINE_SECONDS, eventually
from tests.system.zookeeper import free_port

MEBIBYTE = 1024 * 1024
DISK, SOFT, HARD = 160 * MEBIBYTE, 100 * MEBIBYTE, 40 * MEBIBYTE


@dataclass
class Watched:
    """A cluster of two brokers, each with a small disk."""

    kafka: EmbeddedKafka
    disks: dict[int, Path]

    def usable_bytes(self, broker: int) -> int:
        """What its disk has free, asked of the system itself."""
        stat = os.statvfs(self.disks[broker])
        return stat.f_bavail * stat.f_frsize

    def set_up_again(self) -> None:
        """Replace the cluster by a new, empty one behind the same addresses."""
        self.kafka.stop()
        identity = self.kafka.data_dir / "cluster.json"
        ports = json.loads(identity.read_text())
        for folder in (*self.kafka.data_dir.glob("broker-*"), *(disk / "logs" for disk in self.disks.values())):
            shutil.rmtree(folder)
        identity.write_text(json.dumps({**ports, "cluster_id": secrets.token_urlsafe(16)}))
        self.kafka.start()


@dataclass
class Loop:
    """A loop that watches it."""

    watched: Watched
    headgate: Headgate
    file: Path
    servers: str
    prefix: str
    port: int

    def decided(self) -> Topic:
        return Topic(self.servers, f"{self.prefix}.decided.throttle")

    def headgate_command(self, name: str, *options: str) -> None:
        """Run a command about the watched cluster, as an operator does."""
        command = [sys.executable, "-m", "deploy.cli", name, "--cluster", "payments", *options, "-s", str(self.file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def watched(kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    if (why := why_not_mountable()) is not None:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("throttle")
    with ExitStack() as stack:
        disks = {b: stack.enter_context(small_disk(folder / f"disk-{b}", mebibytes=DISK // MEBIBYTE)) for b in (1, 2)}
        kafka = EmbeddedKafka(
            folder / "watched",
            kafka_jars,
            brokers=2,
            log_dirs={b: [disk / "logs"] for b, disk in disks.items()},
            heap_mebibytes=128,
        )
        yield Watched(stack.enter_context(kafka), disks)


@pytest.fixture(scope="module")
def loop(watched: Watched, loop_kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    """One for all tests here: each begins with free disks, and leaves them so."""
    folder, port, prefix = tmp_path_factory.mktemp("loop"), free_port(), f"t{uuid.uuid4().hex[:8]}"
    kafka = {"bootstrap_servers": watched.kafka.bootstrap_servers, "poll_interval": "300ms", "timeout": "3s"}
    file = write_settings(
        folder / "headgate.yaml",
        kafka={"bootstrap_servers": loop_kafka},
        topics={"prefix": prefix},
        data_dir=str(folder / "data"),
        http={"port": port},
        clusters={"payments": {"kafka": kafka}},
        policies={
            "throttle": {
                "hard": {"available_bytes_below": HARD},
                "soft": {"available_bytes_below": SOFT},
                "anticipate": False,  # so each factor is that of the free space it names
                "min_hold": "2s",
                "validity": "15s",
            }
        },
    )
    with Headgate(["run", "-s", str(file)], folder / "run.log") as headgate:
        await_ready(headgate, port)
        yield Loop(watched, headgate, file, loop_kafka, prefix, port)
        assert headgate.stop() == 0
        assert "Traceback" not in headgate.output(), headgate.output()


def test_silence_of_a_killed_broker_never_opens_the_gate(loop: Loop) -> None:
    watched = loop.watched
    with loop.decided() as decided, Topic(loop.servers, f"{loop.prefix}.decided.alerts") as alerts:
        eventually("factor 1.0", lambda: _factor(decided) == 1.0)
        # Ballast on one disk alone, so that only the broker to be killed limits.
        ballast = watched.disks[2] / "ballast"
        ballast.write_bytes(b"\0" * (watched.usable_bytes(2) - (SOFT + HARD) // 2))
        slowed = eventually("all of the ballast is seen", lambda: _last_at(decided, 2, watched.usable_bytes(2)))
        assert slowed["factor"] < 1.0
        kill_broker(watched.kafka, 2)
        stale = eventually("it alone is stale", lambda: _last_stale(decided, brokers=1))
        assert stale["factor"] <= slowed["factor"], "a poll may have seen the ballast half written"
        assert stale["limiting"]["broker"] == 2
        eventually("an alert", lambda: any(a["subject"] == "payments/2" for a in alerts.data()))
        unread = next(a for a in alerts.data() if a["subject"] == "payments/2")
        assert (unread["alert"], unread["status"]) == ("log-dirs-unread", "firing")
        watched.kafka.start_broker(2)
        ballast.unlink()
        eventually("read again and open", lambda: _factor(decided) == 1.0)
        eventually(
            "resolved", lambda: any(a["status"] == "resolved" and a["subject"] == "payments/2" for a in alerts.data())
        )
        killed = [d["sequence"] for d in decided.data()].index(slowed["sequence"])
        opened = next(d for d in decided.data()[killed + 1 :] if d["factor"] > slowed["factor"])
        assert (opened["verdict"], opened["brokers"]["stale"]) == ("raise", 0)


def test_an_operator_forgets_the_dir_of_a_dead_broker_and_adopts_a_cluster_that_was_set_up_again(loop: Loop) -> None:
    """Both commands take the way through Spark's own routing."""
    watched = loop.watched
    with loop.decided() as decided, Topic(loop.servers, f"{loop.prefix}.decided.alerts") as alerts:
        eventually("factor 1.0", lambda: _factor(decided) == 1.0)
        ballast = watched.disks[2] / "ballast"
        ballast.write_bytes(b"\0" * (watched.usable_bytes(2) - (SOFT + HARD) // 2))
        eventually("all of the ballast is seen", lambda: _last_at(decided, 2, watched.usable_bytes(2)))
        kill_broker(watched.kafka, 2)
        eventually("it alone is stale", lambda: _last_stale(decided, brokers=1))
        loop.headgate_command("forget", "--broker", "2", "--log-dir", str(watched.disks[2] / "logs"))
        eventually("the others decide", lambda: _factor(decided) == 1.0)
        ballast.unlink()

        began = len(alerts.data())
        watched.set_up_again()
        eventually("an alert", lambda: _replaced(alerts, began) == ["firing"])
        loop.headgate_command("adopt")
        eventually("it is resolved", lambda: _replaced(alerts, began) == ["firing", "resolved"])
        eventually("the new brokers count", lambda: decided.data()[-1]["brokers"]["counted"] == 2)


def _replaced(alerts: Topic, began: int) -> list[str]:
    """The beginnings and ends of `cluster-replaced`, repetitions left out."""
    told = [each["status"] for each in alerts.data()[began:] if each["alert"] == "cluster-replaced"]
    return list(dict.fromkeys(told))


def _factor(decided: Topic) -> float | None:
    data = decided.data()
    return data[-1]["factor"] if data else None


def _last_at(decided: Topic, broker: int, usable_bytes: int) -> dict[str, Any] | None:
    """The last decision, once it is for what this broker has usable: a poll may see a file half written."""
    last = decided.data()[-1]
    limiting = last["limiting"] or {"broker": None}
    is_it = limiting["broker"] == broker and abs(limiting["usable_bytes"] - usable_bytes) <= (SOFT - HARD) // 10
    return last if is_it else None


def _last_stale(decided: Topic, *, brokers: int) -> dict[str, Any] | None:
    last = decided.data()[-1]
    return last if last["reason"] == "stale_volume" and last["brokers"]["stale"] == brokers else None
