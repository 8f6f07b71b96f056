"""Bookie groups through Pulsar's admin REST API, for clusters without access to their ZooKeeper.

ZooKeeper is stronger and should be preferred. The REST API adds a bookie to a group unconditionally and removes it
from any other. So an assignment that another client makes between our read and our write is undone, and that cannot be
detected afterwards. The groups are read directly before and after, which makes this improbable, not impossible.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import httpx

from connectors.actuation.reports import ActionError, UnknownOutcomeError
from connectors.isolation.quarantine.racks import (
    ConflictError,
    RacksSnapshot,
    find_group,
    parse_host,
)
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.bookie_http import BookieHttp
from connectors.pulsar.outcomes import AdminError, detail_of, was_not_done
from policies.bookie_readings import BookieRegistration
from policies.errors import UserError

_FAILURES = (AdminError, httpx.RequestError, UserError)


class AdminRacks:
    """The racks-info of one cluster.

    Args:
        admin: the admin REST API; shared with others, so not closed here.
        bookies: a bookie's HTTP endpoint, which lists the registered bookies. Closed with this.
    """

    def __init__(
        self, admin: AdminApi, bookies: BookieHttp, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._admin = admin
        self._bookies = bookies
        self._clock = clock

    def read_groups(self, bookie: str) -> RacksSnapshot:
        """Read the groups, and whether a bookie is registered.

        An absent znode `/bookies` looks like one without groups.

        Raises:
            ActionError: no usable answer.
        """
        try:
            # The groups come last: they must be the fresher ones. HTTP shows no session and time of a registration.
            writable = frozenset(self._bookies.writable())
            registration = BookieRegistration(bookie=bookie) if bookie in writable else None
            groups = self._admin.racks()
        except _FAILURES as error:
            raise ActionError(detail_of(error)) from None
        return RacksSnapshot(groups, registration, writable, self._clock(), partial(self._write, bookie))

    def close(self) -> None:
        """Close the connection to the bookies; the next `read_groups` opens a new one."""
        self._bookies.close()

    def _write(self, bookie: str, group: str, rack: str) -> datetime:
        try:
            self._admin.set_rack(bookie, group, rack, parse_host(bookie))
        except _FAILURES as error:
            kind = ActionError if was_not_done(error) else UnknownOutcomeError
            raise kind(detail_of(error)) from None
        at = self._clock()
        try:
            groups = self._admin.racks()
        except _FAILURES as error:
            raise UnknownOutcomeError(detail_of(error)) from None
        if find_group(groups, bookie) != group:
            raise ConflictError("others changed its group each time")
        return at
