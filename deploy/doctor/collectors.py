"""The collectors themselves, run once: what they read goes nowhere, and says whether they could."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue

from prometheus_client import CollectorRegistry

from connectors.part import Part
from connectors.poll_metrics import PollMetrics
from connectors.probe import Answer, Probe
from connectors.read_errors import rank
from connectors.registration import ClusterSources, CollectorContext, PolicyConnectors, ProbeContext, connectors_of
from deploy.connections import Connections
from deploy.doctor.results import LIMIT_SECONDS
from deploy.settings import Settings
from policies.observations import Outcome, Reading
from policies.registry import POLICIES

_QUIET_SECONDS = 0.7
"""After the first reading: the others of the same round come within that."""
_END_SECONDS = 2.0


def cluster_probes(settings: Settings, connections: Connections) -> Iterator[Probe]:
    """Of every watched cluster and policy: its collectors run once, and what its actuators need."""
    blocks, metrics = settings.policy_settings(), PollMetrics(CollectorRegistry())

    def context(name: str, own: object, readings: "SimpleQueue[Reading]") -> CollectorContext:
        cluster = settings.clusters[name]
        return CollectorContext(name, cluster, lambda *_: readings.put, metrics, connections, settings=own)

    for name, cluster in settings.clusters.items():
        for kind in POLICIES.values():
            registered, own = connectors_of(kind), blocks[kind.name].for_cluster(name)
            yield from _of_collectors(kind.name, registered, partial(context, name, own))
            yield from registered.probes(ProbeContext(name, cluster, own, connections))


def _of_collectors(
    policy: str, registered: PolicyConnectors, context: Callable[["SimpleQueue[Reading]"], CollectorContext]
) -> Iterator[Probe]:
    for number in count():
        # What each reads is told apart by where it goes: for each the context is made anew, and of its parts one run.
        readings: SimpleQueue[Reading] = SimpleQueue()
        given = context(readings)
        parts = list(registered.collectors(given))
        if number >= len(parts):
            return
        part = parts[number]
        ask = partial(_once, part, readings, registered, given.cluster)
        name = part.name.removesuffix(f" of {given.name}")
        yield Probe(given.name, f"{policy} collector" if name == "collector" else name, ask)


def _once(
    part: Part, readings: "SimpleQueue[Reading]", registered: PolicyConnectors, cluster: ClusterSources
) -> Answer:
    running = threading.Thread(target=part.run, args=(part.stop,), name=part.name, daemon=True)
    running.start()
    found = list(_first_round(readings))
    part.stop.set()
    running.join(_END_SECONDS)
    if not found:
        return Answer(Outcome.TIMEOUT, "it read nothing")
    return _answer(found, lambda reading: tuple(registered.remedies(cluster, reading)))


def _first_round(readings: "SimpleQueue[Reading]") -> Iterator[Reading]:
    ends_at = time.monotonic() + LIMIT_SECONDS - _END_SECONDS - 1
    wait_seconds = ends_at - time.monotonic()
    while True:
        try:
            yield readings.get(timeout=max(0.0, min(wait_seconds, ends_at - time.monotonic())))
        except Empty:
            return
        wait_seconds = _QUIET_SECONDS


def _answer(readings: list[Reading], remedies: Callable[[Reading], tuple[str, ...]]) -> Answer:
    """Of all readings what says most about what to mend; else how many there were of each kind."""
    last = {(type(each), each.subject()): each for each in readings}
    bad = sorted(
        (each for each in last.values() if each.outcome is not Outcome.OK), key=lambda each: rank(each.outcome)
    )
    if bad:
        worst = bad[0]
        subject = "" if worst.subject() == worst.cluster else f"{worst.subject()}: "
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        told = tuple(dict.fromkeys(line for each in bad for line in remedies(each)))
        return Answer(worst.outcome, f"{subject}{worst.detail or worst.outcome.value}{more}", told)
    counts: dict[str, int] = defaultdict(int)
    for each in last.values():
        counts[each.event_type.removeprefix("headgate.").rpartition(".v")[0]] += 1
    return Answer(Outcome.OK, ", ".join(f"{name} {count}" if count > 1 else name for name, count in counts.items()))
