"""Bookie groups through Pulsar's admin REST API, for clusters whose ZooKeeper is out of reach.

This is weaker than ZooKeeper, which should be preferred. The REST API adds a bookie to a group unconditionally and
removes it from any other. So an assignment that somebody else makes between our read and our write is undone, and that
cannot be detected afterwards. The groups are read directly before and after, which makes this improbable, not
impossible.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import httpx

from connectors.actuation.reports import ActionError, UnknownOutcomeError
from connectors.isolation.quarantine.racks import group_of, host_of
from connectors.isolation.quarantine.store import ConflictError, RacksSnapshot, StoredRegistration
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.bookie_http import BookieHttp
from connectors.pulsar.outcomes import AdminError, detail_of, was_not_done
from policies.errors import UserError
from policies.isolation.readings import RackInfo

_FAILURES = (AdminError, httpx.RequestError, UserError)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class AdminRacks:
    """The racks-info of one cluster.

    Args:
        admin: how to reach it; shared with others, so not closed here.
        bookies: tells who is registered. Closed with this.
        clock: the time.
    """

    def __init__(self, admin: AdminApi, bookies: BookieHttp, *, clock: Callable[[], datetime] = _utc_now) -> None:
        self._admin = admin
        self._bookies = bookies
        self._clock = clock

    def look(self, bookie: str) -> RacksSnapshot:
        """Read the groups, and whether a bookie is registered as a bookie tells it.

        An absent znode `/bookies` looks like one without groups.

        Raises:
            ActionError: no good answer.
        """
        try:
            # The groups come last: they must be the fresher.
            registration = self._registration(bookie)
            groups = self._admin.racks()
        except _FAILURES as error:
            raise ActionError(detail_of(error)) from None
        return RacksSnapshot(groups, registration, self._clock(), partial(self._write, bookie))

    def close(self) -> None:
        """Close the connection to the bookies; the next look makes a new one."""
        self._bookies.close()

    def _registration(self, bookie: str) -> StoredRegistration | None:
        """Over HTTP neither its session nor its time is known."""
        return StoredRegistration() if bookie in self._bookies.writable() else None

    def _write(self, bookie: str, group: str, rack: str) -> datetime:
        try:
            self._admin.set_rack(bookie, group, rack, host_of(bookie))
        except _FAILURES as error:
            kind = ActionError if was_not_done(error) else UnknownOutcomeError
            raise kind(detail_of(error)) from None
        at = self._clock()
        if group_of(self._groups_after(), bookie) != group:
            raise ConflictError("others changed its group each time")
        return at

    def _groups_after(self) -> dict[str, dict[str, RackInfo]]:
        try:
            return self._admin.racks()
        except _FAILURES as error:
            raise UnknownOutcomeError(detail_of(error)) from None
