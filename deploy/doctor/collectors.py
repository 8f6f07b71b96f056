"""Runs each collector once, without publishing, and reports whether it could read."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count

from prometheus_client import CollectorRegistry

from connectors.collection.poll_metrics import PollMetrics
from connectors.collection.probe import Probe, ProbeResult
from connectors.collection.read_errors import rank
from connectors.component import Component
from connectors.registration import CollectorContext, PolicyConnectors, ProbeContext, connectors_of
from deploy.doctor.results import LIMIT_SECONDS
from deploy.processes.connections import Connections
from deploy.settings.application import Settings
from policies.observations import Outcome, Reading
from policies.registry import POLICIES

_QUIET_SECONDS = 0.3
"""A round has ended if no poll starts for this time after the last one; a collector's threads start theirs sooner."""
_END_SECONDS = 2.0


class _Polls(PollMetrics):
    """The metrics of one collector, which also detect the end of its first round of polls."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self._changed = threading.Condition()
        self._under_way, self._first_ended_at, self._ended_at = 0, 0.0, 0.0

    def run_poll(self, cluster: str, poll: Callable[[], None]) -> bool:
        """Run a poll as in the loop, and record when it ends."""
        with self._changed:
            self._under_way += 1
        try:
            return super().run_poll(cluster, poll)
        finally:
            with self._changed:
                self._under_way -= 1
                self._ended_at = time.monotonic()
                self._first_ended_at = self._first_ended_at or self._ended_at
                self._changed.notify_all()

    def await_round(self, until: float) -> float | None:
        """Return when the last poll of the first round ended; None if it has not ended by then."""
        with self._changed:
            while (now := time.monotonic()) < until:
                quiet = now - self._ended_at >= _QUIET_SECONDS or now - self._first_ended_at >= _END_SECONDS
                if self._ended_at and not self._under_way and quiet:
                    return self._ended_at
                self._changed.wait(_QUIET_SECONDS if self._ended_at else until - now)
        return None


def cluster_probes(settings: Settings, connections: Connections) -> Iterator[Probe]:
    """Yield the checks of every watched cluster and policy: each collector once, and the needs of the actuators."""
    blocks = settings.policy_settings()
    for name, cluster in settings.clusters.items():
        for kind in POLICIES.values():
            registered, own = connectors_of(kind), blocks[kind.name].for_cluster(name)
            yield from _collector_probes(kind.name, registered, ProbeContext(name, cluster, own, connections))
            yield from registered.probes(ProbeContext(name, cluster, own, connections))


def _collector_probes(policy: str, registered: PolicyConnectors, of: ProbeContext) -> Iterator[Probe]:
    for number in count():
        # Readings are attributed to a collector by their sink. So make all collectors again for each check, and run
        # only one.
        readings: list[Reading] = []
        polls = _Polls()
        sink = partial(_sink, readings)
        context = CollectorContext(of.name, of.cluster, sink, polls, of.clients, settings=of.settings)
        parts = list(registered.collectors(context))
        if number >= len(parts):
            return
        name = parts[number].name.removesuffix(f" of {of.name}")
        ask = partial(_run_once, parts[number], readings, polls, partial(_remedies, registered, of))
        yield Probe(of.name, f"{policy} collector" if name == "collector" else name, ask)


def _remedies(registered: PolicyConnectors, of: ProbeContext, reading: Reading) -> Iterator[str]:
    yield from registered.remedies(of.cluster, reading)
    if reading.outcome in (Outcome.UNREACHABLE, Outcome.TIMEOUT):
        yield f"clusters.{of.name}: check its addresses, that the servers run, and that this machine can reach them"


def _sink(readings: list[Reading], _kind: type[Reading], _source: str) -> Callable[[Reading], None]:
    return readings.append


def _run_once(
    part: Component, readings: list[Reading], polls: _Polls, remedies: Callable[[Reading], Iterator[str]]
) -> ProbeResult:
    began_at = time.monotonic()
    running = threading.Thread(target=part.run, args=(part.stop,), name=part.name, daemon=True)
    running.start()
    ended_at = polls.await_round(began_at + LIMIT_SECONDS - 2 * _END_SECONDS)
    part.stop.set()
    found = list(readings)
    running.join(_END_SECONDS)
    if not found:
        return ProbeResult(Outcome.TIMEOUT, "it has published no reading in time")
    return replace(_summarize_readings(found, remedies), seconds=None if ended_at is None else ended_at - began_at)


def _summarize_readings(readings: list[Reading], remedies: Callable[[Reading], Iterator[str]]) -> ProbeResult:
    """Return the worst reading with its remedies; if all are good, the number of readings of each kind."""
    last = {(type(each), each.subject()): each for each in readings}
    unread = (each for each in last.values() if each.outcome not in (Outcome.OK, Outcome.ABSENT))
    bad = sorted(unread, key=lambda each: rank(each.outcome))
    if bad:
        worst = bad[0]
        subject = "" if worst.subject() == worst.cluster else f"{worst.subject()}: "
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        told = tuple(dict.fromkeys(line for each in bad for line in remedies(each)))
        return ProbeResult(worst.outcome, f"{subject}{worst.detail or worst.outcome.value}{more}", told)
    counts: dict[str, int] = defaultdict(int)
    for each in last.values():
        kind = each.event_type.removeprefix("headgate.").rpartition(".v")[0]
        counts[f"no {kind} ({each.detail})" if each.outcome is Outcome.ABSENT else kind] += 1
    return ProbeResult(
        Outcome.OK, ", ".join(f"{name} {count}" if count > 1 else name for name, count in counts.items())
    )
