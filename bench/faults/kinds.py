"""The faults: each one harms the world, and has undone the harm when it returns."""

import os
import shutil
import signal
import threading
from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from confluent_kafka.admin import AdminClient

from bench.faults.world import BROKERS, PREFIX, World, frozen, signal_all
from policies.registry import observed_topics

_SLOW_SECONDS = 0.3


class Harm(NamedTuple):
    """The arguments of a fault."""

    world: World
    random: Random
    seconds: float
    """How long it lasts at most, where it lasts."""

    def lasts(self) -> None:
        """Wait for some of the time."""
        threading.Event().wait(self.random.uniform(self.seconds / 4, self.seconds))


class Kind(NamedTuple):
    """A kind of fault."""

    name: str
    inject: Callable[[Harm], None]
    weight: int = 1
    """Weight in a short run; faults that end within seconds have more."""
    loses_checkpoint: bool = False
    """Whether the query may start without a checkpoint after it."""
    loses_offsets: bool = False
    """Whether a topic's offsets start at 0 again."""
    needs_disk: bool = False


def _killed_alone(what: str, harm: Harm) -> None:
    signal_all(harm.world.pids("decide", what), signal.SIGKILL)


def _frozen(part: str, what: str, harm: Harm) -> None:
    with frozen(harm.world.pids(part, what)):
        harm.lasts()


def _brokers_killed(count: int, harm: Harm) -> None:
    with harm.world.without_brokers(*harm.random.sample(BROKERS, count)):
        harm.lasts()


def _brokers_frozen(count: int, harm: Harm) -> None:
    with frozen([harm.world.kafka.pids[broker] for broker in harm.random.sample(BROKERS, count)]):
        harm.lasts()


def _network_fails(how: str, harm: Harm) -> None:
    chosen = harm.random.choice([BROKERS, (harm.random.choice(BROKERS),)])
    for broker in chosen:
        proxy = harm.world.proxies[broker]
        if how == "slow":
            proxy.slow(_SLOW_SECONDS)
        else:
            (proxy.cut if how == "cut" else proxy.stall)()
    try:
        harm.lasts()
    finally:
        for broker in chosen:
            harm.world.proxies[broker].heal()


def _disk_full(harm: Harm) -> None:
    filler = harm.world.checkpoint.with_name("filler")
    try:
        with filler.open("wb", buffering=0) as file:
            while file.write(bytes(65_536)) == 65_536:
                pass
    except OSError:
        harm.lasts()
    finally:
        filler.unlink()


def _topic_created_anew(harm: Harm) -> None:
    topic = harm.random.choice(sorted(observed_topics()))
    admin = AdminClient({"bootstrap.servers": harm.world.kafka.bootstrap_servers})
    admin.delete_topics([f"{PREFIX}.{topic}"])[f"{PREFIX}.{topic}"].result(60)
    harm.lasts()
    harm.world.make_topics()
    harm.world.reader.begin_anew(topic)


def _checkpoint_deleted(harm: Harm) -> None:
    shutil.rmtree(harm.world.checkpoint, ignore_errors=True)


def _emptied(log: str, harm: Harm) -> None:
    """As a disk leaves it that was full, or lost its power."""
    with harm.world.held("decide"):
        files = (file for file in (harm.world.checkpoint / log).iterdir() if file.name.isdigit())
        os.truncate(max(files, key=lambda file: int(file.name)), 0)


def _state_damaged(harm: Harm) -> None:
    with harm.world.held("decide"):
        files = (harm.world.checkpoint / "state").rglob("*.changelog")
        newest = max(files, key=lambda p: p.stat().st_mtime)
        harm.random.choice([lambda: os.truncate(newest, 0), newest.unlink])()


KINDS = (
    Kind("kill -9 collector", lambda harm: harm.world.kill("collect"), 6),
    Kind("kill -9 exporter", lambda harm: harm.world.kill("export"), 6),
    Kind("kill -9 actuator", lambda harm: harm.world.kill("act"), 6),
    Kind("kill -9 query's process group", lambda harm: harm.world.kill("decide")),
    Kind("kill -9 query's process alone", partial(_killed_alone, "")),
    Kind("kill -9 query's JVM", partial(_killed_alone, "jvm")),
    Kind("kill -9 Python workers", partial(_killed_alone, "workers"), 2),
    Kind("kill -9 one of three brokers", partial(_brokers_killed, 1), 2),
    Kind("SIGSTOP collector", partial(_frozen, "collect", ""), 6),
    Kind("SIGSTOP exporter", partial(_frozen, "export", ""), 6),
    Kind("SIGSTOP actuator", partial(_frozen, "act", ""), 6),
    Kind("SIGSTOP query's process", partial(_frozen, "decide", ""), 2),
    Kind("SIGSTOP query's JVM", partial(_frozen, "decide", "jvm"), 2),
    Kind("SIGSTOP Python workers", partial(_frozen, "decide", "workers"), 2),
    Kind("SIGSTOP query with all it started", partial(_frozen, "decide", "all"), 2),
    Kind("SIGSTOP one of three brokers", partial(_brokers_frozen, 1), 2),
    Kind("SIGSTOP all brokers", partial(_brokers_frozen, len(BROKERS))),
    Kind("Kafka away", partial(_brokers_killed, len(BROKERS))),
    Kind("network cut", partial(_network_fails, "cut"), 6),
    Kind("network half open", partial(_network_fails, "half open"), 6),
    Kind("network slow", partial(_network_fails, "slow"), 6),
    Kind("checkpoint's disk full and freed", _disk_full, needs_disk=True),
    Kind("observed topic deleted and created anew", _topic_created_anew, loses_offsets=True),
    Kind("checkpoint deleted while running", _checkpoint_deleted, loses_checkpoint=True),
    Kind("newest commit of length 0", partial(_emptied, "commits"), loses_checkpoint=True),
    Kind("newest plan of length 0", partial(_emptied, "offsets"), loses_checkpoint=True),
    Kind("state file damaged or gone", _state_damaged, loses_checkpoint=True),
)
