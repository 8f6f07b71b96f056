"""Measures the time from the loss of a member's session to the decision, and until it owns all its bundles again.

A real ZooKeeper (tickTime 500 ms), a real Kafka, `headgate run` with collectors that look every 200 ms, and an agent in
a process of its own that owns ten bundles and follows the loop. In each run its connection is cut, by a proxy, until
ZooKeeper has expired its session, and healed at once. Cut and expiry are by this machine's clock, decisions by Kafka's,
nodes by ZooKeeper's, all on one machine.

    python bench/sessions.py --runs 30
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from kazoo.client import KazooClient

from bench.quantiles import quantile
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, ensure_jars
from policies.sessions.settings import monitor_ms
from tests.system.sessions import ZOOKEEPER, Fleet, SessionsLoop, sessions_loop
from tests.system.waiting import eventually
from tests.system.zookeeper import ZooKeeper, free_port

CLUSTER, MEMBER = "c1", "b1:8080"
T_MS = 2_000
BUNDLES = [f"t/ns/0x{n:08x}_0x{n + 1:08x}" for n in range(10)]
WATCHED = {"sessions": {"poll_interval": "200ms"}, "ownership": {"poll_interval": "200ms"}}
SESSIONS = {"settle": "0s"}  # thirty losses in a row must not count as flapping here


@dataclass(frozen=True)
class Run:
    """One loss, in milliseconds."""

    cut_to_hold: float
    lapse_to_reconnect: float
    """From 5T/6 after the cut, when the session counts as lost."""
    expired_to_recover: float
    """From the end of the session in ZooKeeper, and from the cut, to the plan."""
    expired_to_all_re_owned: float
    cut_to_all_re_owned: float


def main() -> None:
    """Lose the session again and again, and print a line for each measured time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30, help="losses")
    count = parser.parse_args().runs
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder, _running(Path(folder)) as parts:
        client, fleet, loop = parts
        lose(client, fleet, loop)  # to warm up
        runs = [lose(client, fleet, loop) for _ in range(count)]
    print(f"{count} losses of {len(BUNDLES)} bundles, T {T_MS} ms; load {os.getloadavg()[0]:.1f}")
    print(f"{'ms':<26} {'p50':>7} {'p99':>7} {'longest':>8}")
    for name, values in zip((field.name for field in fields(Run)), zip(*map(astuple, runs), strict=True), strict=True):
        _print_row(name.replace("_", " "), values)


def lose(client: KazooClient, fleet: Fleet, loop: SessionsLoop) -> Run:
    """Cut the member off until its session has expired; return when it has recovered."""
    mark = loop.mark()
    with fleet.cut(MEMBER):
        cut_ms = time.time() * 1000
        eventually("its session has expired", lambda: fleet.registered_session(MEMBER) is None)
        expired_ms = time.time() * 1000
    loop.await_decision(CLUSTER, MEMBER, "resume", "recovered", since=mark)
    first = {
        verdict: loop.await_decision(CLUSTER, MEMBER, verdict, since=mark).appended_ms
        for verdict in ("hold", "reconnect", "recover")
    }
    owned_ms = max(client.get(f"/{CLUSTER}/namespace/{bundle}")[1].ctime for bundle in BUNDLES)
    eventually("it is registered", lambda: fleet.registered_session(MEMBER) is not None)
    return Run(
        cut_to_hold=first["hold"] - cut_ms,
        lapse_to_reconnect=first["reconnect"] - cut_ms - monitor_ms(T_MS),
        expired_to_recover=first["recover"] - expired_ms,
        expired_to_all_re_owned=owned_ms - expired_ms,
        cut_to_all_re_owned=owned_ms - cut_ms,
    )


@contextmanager
def _running(folder: Path) -> Iterator[tuple[KazooClient, Fleet, SessionsLoop]]:
    cache = default_cache_dir()
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper(folder / "zookeeper", ensure_jars("bookkeeper", cache)))
        kafka = stack.enter_context(EmbeddedKafka(folder / "kafka", ensure_jars("kafka", cache)))
        client = stack.enter_context(zookeeper.client(timeout=20.0))
        client.ensure_path(f"/{CLUSTER}")
        watched = {"zookeeper": {"servers": f"{zookeeper.servers}/{CLUSTER}", **ZOOKEEPER}, **WATCHED}
        loop = stack.enter_context(
            sessions_loop(
                loop_kafka=kafka.bootstrap_servers,
                folder=folder,
                port=free_port(),
                clusters={CLUSTER: watched},
                sessions=SESSIONS,
            )
        )
        timeout = ("--session-timeout", str(T_MS / 1000))
        fleet = stack.enter_context(Fleet(CLUSTER, zookeeper.servers, client, folder, loop, timeout))
        fleet.start(MEMBER, *BUNDLES)
        for bundle in BUNDLES:
            fleet.await_serving(MEMBER, bundle)
        owned = {"cluster": CLUSTER, "state": "owned"}
        eventually("headgate knows", lambda: loop.metric("headgate_bundles", **owned) == len(BUNDLES))
        yield client, fleet, loop


def _print_row(name: str, values: Sequence[float]) -> None:
    print(f"{name:<26} {quantile(values, 50):7.0f} {quantile(values, 99):7.0f} {max(values):8.0f}")


if __name__ == "__main__":
    main()
