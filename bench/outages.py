"""Seconds until real Pulsar brokers are registered and listed again after ZooKeeper was away.

The default of `zombie_after` comes from what this prints.

A ZooKeeper, a bookie and Pulsar 4.2.4 brokers (`zookeeperSessionExpiredPolicy=reconnect`), some with a session timeout
of 6 s and some of 30 s, in one cluster. The bench kills the ZooKeeper server and starts it again after a while.
From the moment it can be read again each broker's registration is looked at four times a second, its health and every
broker's list of brokers once a second. A line of JSON for each broker and outage; times are seconds from that moment.

    python bench/outages.py --away 12 20 40 --watch 150
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from kazoo.client import KazooClient

from deploy.java.jars import default_cache_dir, ensure_jars
from deploy.java.pulsar_jars import ensure_pulsar_jars
from policies.sessions.readings import registration_path
from tests.system.pulsar import CLUSTER, PulsarBroker, PulsarCluster

LOOK_SECONDS = 0.25
SETTLED_SECONDS = 10.0
"""A broker that is registered and listed for this time, longer than its session timeout, has recovered."""


@dataclass
class Course:
    """The result for one broker after one outage."""

    timeout_s: float
    away_s: float
    broker: str
    kept_session: bool = False
    """Whether its session survived the outage."""
    unregistered_s: float | None = None
    """When its registration disappeared."""
    registered_s: float | None = None
    """When it was registered permanently; None if that was not observed."""
    healthy_s: float | None = None
    """When it reported itself healthy, permanently."""
    listed_s: float | None = None
    """When each broker listed it, permanently."""
    lists_itself_s: float | None = None
    """When its own list contained it, permanently."""
    watched_s: float = 0.0


def main() -> None:
    """Stop ZooKeeper again and again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--away", type=float, nargs="+", default=[12, 20, 40], help="lengths of the outages, seconds")
    parser.add_argument("--timeouts", type=float, nargs="+", default=[6, 6, 30, 30], help="T of each broker, seconds")
    parser.add_argument("--watch", type=float, default=240, help="how long to watch each broker at the most, seconds")
    parser.add_argument("--within", type=float, default=float("inf"), help="begin no outage that could end after this")
    given = parser.parse_args()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder,
        _running(Path(folder), given.timeouts) as pulsar,
    ):
        for away_s in given.away:
            if time.monotonic() - began + away_s + given.watch > given.within:
                break
            for course in _outage(pulsar, given.timeouts, away_s, given.watch):
                print(json.dumps({**asdict(course), "load": round(os.getloadavg()[0], 1)}), flush=True)
            _restart_the_unwell(pulsar)


@contextmanager
def _running(folder: Path, timeouts_s: Sequence[float]) -> Iterator[PulsarCluster]:
    cache = default_cache_dir()
    jars, bookkeeper = ensure_pulsar_jars(cache), ensure_jars("bookkeeper", cache)
    with PulsarCluster(folder, jars, bookkeeper, bookies=0) as pulsar:
        # The bookie survives every outage. It is not the subject, but without it no broker reports itself healthy.
        pulsar.add_bookie(session_timeout_ms=600_000)
        for timeout_s in timeouts_s:
            pulsar.add_broker(ensemble_size=1, session_timeout_ms=int(timeout_s * 1000))
        yield pulsar


def _outage(pulsar: PulsarCluster, timeouts_s: Sequence[float], away_s: float, watch_s: float) -> list[Course]:
    courses = [Course(t, away_s, b.broker_id) for t, b in zip(timeouts_s, pulsar.brokers, strict=True)]
    with pulsar.zookeeper.client(timeout=30.0) as client:
        before = [_session(client, broker) for broker in pulsar.brokers]
    pulsar.zookeeper.kill()
    time.sleep(away_s)
    pulsar.zookeeper.start()
    readable = time.monotonic()
    with pulsar.zookeeper.client(timeout=30.0) as client, ThreadPoolExecutor(2 * len(courses)) as workers:
        asked_at = 0.0
        while (now_s := time.monotonic() - readable) < watch_s and not all(_has_healed(c, now_s) for c in courses):
            for course, broker, session in zip(courses, pulsar.brokers, before, strict=True):
                _note_node(course, _session(client, broker), session, now_s)
            if now_s - asked_at >= 1.0:
                asked_at = now_s
                lists = list(workers.map(_listed, pulsar.brokers))
                healths = list(workers.map(_is_healthy, pulsar.brokers))
                for course, own, healthy in zip(courses, lists, healths, strict=True):
                    course.healthy_s = _since(course.healthy_s, healthy, now_s)
                    course.listed_s = _since(course.listed_s, all(course.broker in each for each in lists), now_s)
                    course.lists_itself_s = _since(course.lists_itself_s, course.broker in own, now_s)
            time.sleep(LOOK_SECONDS)
    for course in courses:
        course.watched_s = round(time.monotonic() - readable, 1)
    return courses


def _note_node(course: Course, session: int | None, before: int | None, now_s: float) -> None:
    course.kept_session = session is not None and session == before
    if session is None and course.unregistered_s is None:
        course.unregistered_s = round(now_s, 2)
    # A node of the previous session may still disappear with it.
    counts = session is not None and (session != before or now_s > course.timeout_s + SETTLED_SECONDS)
    course.registered_s = _since(course.registered_s, counts, now_s)


def _since(before: float | None, holds: bool, now_s: float) -> float | None:
    if not holds:
        return None
    return round(now_s, 2) if before is None else before


def _has_healed(course: Course, now_s: float) -> bool:
    moments = (course.registered_s, course.lists_itself_s, course.healthy_s)
    past = now_s > course.timeout_s + SETTLED_SECONDS
    return past and all(moment is not None and now_s - moment >= SETTLED_SECONDS for moment in moments)


def _session(client: KazooClient, broker: PulsarBroker) -> int | None:
    stat = client.exists(registration_path(broker.broker_id))
    return None if stat is None else int(stat.ephemeralOwner)


def _is_healthy(broker: PulsarBroker) -> bool:
    try:
        return httpx.get(f"{broker.admin_url}/admin/v2/brokers/health", timeout=2).is_success
    except httpx.TransportError:
        return False


def _listed(broker: PulsarBroker) -> list[str]:
    try:
        answer = httpx.get(f"{broker.admin_url}/admin/v2/brokers/{CLUSTER}", timeout=2)
    except httpx.TransportError:
        return []
    return list(answer.json()) if answer.is_success else []


def _restart_the_unwell(pulsar: PulsarCluster) -> None:
    with pulsar.zookeeper.client(timeout=30.0) as client:
        unwell = [b for b in pulsar.brokers if _session(client, b) is None or not _is_healthy(b)]
    for broker in unwell:
        print(f"{broker.broker_id} is restarted", file=sys.stderr)
        broker.kill()
        broker.start()


if __name__ == "__main__":
    main()
