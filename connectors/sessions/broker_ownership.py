"""Reads from the brokers which bundles they own, where ZooKeeper does not show it.

With the extensible load manager (Pulsar 3 and 4), brokers register in ZooKeeper, but keep ownership in a topic. Each
broker answers `GET /admin/v2/brokers/{cluster}/{broker}/ownedNamespaces` for itself; any other redirects to it. An
answer belongs to the session of the broker's registration, which was read just before.
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from connectors.pulsar.admin import AdminApi
from connectors.pulsar.connection import is_member
from connectors.pulsar.outcomes import READ_ERRORS
from policies.observations import Outcome
from policies.sessions.readings import NAMESPACES, NodeKind, OwnedNode, Ownerships

CONCURRENCY = 16
"""Number of brokers asked in parallel."""

MAX_SILENCE_SECONDS = 60.0
"""Time after the last answer of any broker from which ownership as a whole is unknown.

All are asked through one broker. If that one pauses, all are silent, though they still own their bundles.
"""


class BrokerOwnership:
    """Asks all registered brokers of one cluster for their bundles.

    Args:
        cluster: the cluster's name in Pulsar.
        admin: the admin REST API; shared with others, so not closed here.
    """

    def __init__(self, cluster: str, admin: AdminApi | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._admin = admin
        self._clock = clock
        self._answered_at = -math.inf
        self._owned: dict[str, tuple[str, ...]] = {}
        """The last answer of each broker."""

    def read(self, registrations: Sequence[OwnedNode]) -> Ownerships:
        """Return the owners of all bundles.

        The bundles of a registered broker that does not answer exist, but their owner is unknown. If none has answered
        for `MAX_SILENCE_SECONDS`, the outcome is `unsupported`: this is no fault of ZooKeeper's.
        """
        if self._admin is None:
            return self._fail("set pulsar.admin_url, so that the brokers are asked which bundles they own")
        sessions = {name: node.session for node in registrations if is_member(name := node.path.rpartition("/")[2])}
        admin, failures = self._admin, []
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="owned bundles") as workers:
            asked = {name: workers.submit(admin.owned_bundles, self._cluster, name) for name in sorted(sessions)}
        self._owned = {name: self._owned.get(name, ()) for name in sessions}
        silent = set()
        for name, answer in asked.items():
            try:
                self._owned[name] = answer.result()
            except READ_ERRORS.expected as error:
                silent.add(name)
                failures.append(READ_ERRORS.detail_of(error))
        if len(silent) < len(sessions):
            self._answered_at = self._clock()
        elif failures and self._clock() >= self._answered_at + MAX_SILENCE_SECONDS:
            return self._fail(f"no broker says which bundles it owns: {failures[0]}")
        nodes: dict[str, OwnedNode] = {}
        for name in sorted(sessions, key=lambda name: (name not in silent, name)):  # an answer overrides an old one
            for bundle in self._owned[name]:
                owner, session = (None, None) if name in silent else (name, sessions[name])
                path = f"{NAMESPACES}/{bundle}"
                nodes[path] = OwnedNode(path=path, kind=NodeKind.BUNDLE, owner_member=owner, session=session)
        return Ownerships(cluster=self._cluster, tree=NAMESPACES, nodes=tuple(nodes[path] for path in sorted(nodes)))

    def _fail(self, detail: str) -> Ownerships:
        detail = f"the brokers' load manager keeps no ownership in ZooKeeper: {detail}"
        return Ownerships(cluster=self._cluster, tree=NAMESPACES, outcome=Outcome.UNSUPPORTED, detail=detail)
