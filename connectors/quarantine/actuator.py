"""Follows the isolation decisions, and has each cluster's quarantines carried out on a thread of its own."""

import threading
from collections.abc import Callable, Sequence
from functools import partial

from connectors.actuation import Follower, Loop
from connectors.quarantine.cluster import ClusterQuarantine, WatchedRacks
from connectors.quarantine.metrics import QuarantineMetrics
from connectors.quarantine.reports import Reports
from policies.isolation.decision import BookieQuarantine
from policies.wire import EventReader


class QuarantineActuator:
    """Carries out the decisions for some clusters. Two at a time do no harm: each write counts on what it has read.

    Args:
        loop: where the decisions are.
        clusters: whose.
        publish: hands a record (topic, key, value) over to the loop's Kafka; must not block.
        metrics: where it counts.
    """

    def __init__(
        self,
        loop: Loop,
        clusters: Sequence[WatchedRacks],
        publish: Callable[[str, str, bytes], None],
        metrics: QuarantineMetrics,
    ) -> None:
        audit = partial(publish, loop.audit)
        workers = {w.cluster: ClusterQuarantine(w, Reports(w.cluster, audit, metrics), metrics) for w in clusters}
        self._follower = Follower("quarantine", loop, EventReader((BookieQuarantine,)), workers)

    def caught_up(self) -> str | None:
        """Readiness: null once the decisions in force are known."""
        return self._follower.caught_up()

    def run(self, stop: threading.Event) -> None:
        """Carry decisions out until `stop` is set. Who is in quarantine then stays there.

        Raises:
            UserError: the connection's files cannot be used.
        """
        self._follower.run(stop)
