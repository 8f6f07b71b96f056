"""Follows the sessions decisions, and has those about each cluster's bundles carried out on a thread of its own.

What a broker itself is to do (`shutdown`, `restart`) is for the platform it runs on: nothing here reads it.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial

from connectors.actuation import Follower, Loop, parsed
from connectors.kafka.tail import Record
from connectors.unload.cluster import ClusterUnloads, WatchedUnloads
from connectors.unload.metrics import UnloadMetrics
from connectors.unload.reports import Reports
from policies.sessions.decision import OwnershipDecision
from policies.sessions.unload_events import BundleReOwned, BundleUnloaded, UnloadOutcome
from policies.wire import EventReader


class UnloadActuator:
    """Carries out the decisions about the bundles of some clusters.

    Args:
        loop: where the decisions are.
        clusters: whose.
        publish: hands a record (topic, key, value) over to the loop's Kafka; must not block.
        metrics: where it counts.
    """

    def __init__(
        self,
        loop: Loop,
        clusters: Sequence[WatchedUnloads],
        publish: Callable[[str, str, bytes], None],
        metrics: UnloadMetrics,
    ) -> None:
        audit = partial(publish, loop.audit)
        workers = {w.cluster: ClusterUnloads(w, Reports(w.cluster, audit, metrics), metrics) for w in clusters}
        self._reports = EventReader((BundleUnloaded, BundleReOwned))
        # The broker may serve a bundle again since it was made to let it go, and rightly.
        self._follower = Follower("unload", loop, EventReader((OwnershipDecision,)), workers, self._done)

    def caught_up(self) -> str | None:
        """Readiness: null once the decisions in force are known."""
        return self._follower.caught_up()

    def run(self, stop: threading.Event) -> None:
        """Carry decisions out until `stop` is set.

        Raises:
            UserError: the connection's files cannot be used.
        """
        self._follower.run(stop)

    def _done(self, record: Record) -> tuple[str, str] | None:
        said = parsed(self._reports, record)
        return (said.cluster, said.decision_id) if said and said.outcome is UnloadOutcome.DONE else None
