"""The collector of bookies' disks: asks each registered bookie over HTTP, several at once."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
from pydantic import Field, ValidationError

from connectors.bookie_disks.bookie_admin import (
    BookieAdmin,
    find_dirs,
    find_stranger,
    list_ledger_dirs,
    read_thresholds,
)
from connectors.collection.collector import Collector
from connectors.collection.poll_metrics import PollMetrics
from connectors.collection.read_errors import first_problem
from connectors.http.address import url_problems
from connectors.pulsar.connection import PulsarAdmin, is_member
from connectors.pulsar.outcomes import READ_ERRORS, AdminError
from connectors.redaction import RedactedBlock
from policies.bookie_disks.readings import BookieDisks
from policies.bookie_readings import MAX_BOOKIES
from policies.observations import Outcome, Reading
from policies.units import PositiveDuration, parse_duration

SOURCE = "headgate/collector/bookie-http"
"""The CloudEvents `source` of this collector's readings."""

_AT_ONCE = 16
_OTHERS_ASKED = 3
_LONGEST_NAME = 255
_MEMBER_HOST = "{host}"


class WatchedBookieDisks(RedactedBlock):
    """Settings of the collector of bookies' disks."""

    poll_interval: PositiveDuration = Field(
        default=parse_duration("10s"), description="Interval between readings of all bookies, and time limit of each."
    )
    bookie_url: str = Field(
        description="`http(s)://…` of the HTTP endpoint (httpServerEnabled) of a bookie, or of a name that resolves to "
        "any live bookie: it lists the registered bookies. If it does not answer, known bookies are asked.",
    )
    member_url: str = Field(
        default="http://{host}:8000",
        description="The same of each bookie; `{host}` stands for its host.",
    )
    urls: dict[str, str] = Field(
        default_factory=dict,
        description="Addresses of single bookies, by their ids, in place of `member_url`.",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the problems of the addresses."""
        yield from url_problems("bookie_url", self.bookie_url)
        yield from url_problems("member_url", self.member_url.replace(_MEMBER_HOST, "bookie"))
        for bookie, url in self.urls.items():
            yield from url_problems(f"urls.{bookie}", url)

    def find_url(self, bookie: str, host: str | None) -> str | None:
        """Return the address of a bookie, given its id and its host; None if these are no part of an address."""
        named = host or bookie.rpartition(":")[0] or bookie
        if bookie in self.urls:
            return self.urls[bookie]
        return self.member_url.replace(_MEMBER_HOST, named) if is_member(f"{named}:1") else None


class BookieDisksCollector(Collector):
    """Reads the disks of all registered bookies of a cluster, and publishes one reading for each, failures included.

    Args:
        admin: certificates and timeout.
        publish: called with each reading from several threads; must not block.
        transport: replaces the network in tests.
    """

    def __init__(
        self,
        cluster: str,
        settings: WatchedBookieDisks,
        admin: PulsarAdmin,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(cluster, settings.poll_interval, publish, metrics)
        self._settings = settings
        self._admin = admin
        self._transport = transport
        self._entry = BookieAdmin(settings.bookie_url, admin, transport)
        self._bookies: dict[str, BookieAdmin | None] = {}
        """None: no address can be made of the bookie's name."""

    def close(self) -> None:
        """Close all connections; the next poll opens new ones."""
        for client in (self._entry, *self._bookies.values()):
            if client is not None:
                client.close()

    def _poll(self) -> None:
        """Read and publish all bookies. If they cannot be listed, each known one has a failed reading."""
        try:
            registered = self._list_registered()
        except READ_ERRORS.expected as error:
            for bookie in self._bookies or [""]:
                self._publish_reading(self._failure(bookie, error), bookie=bookie)
        else:
            self._renew_clients(registered)
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=f"disks {self._cluster}") as pool:
                for _ in pool.map(self._read_and_publish, self._bookies):
                    pass

    def _list_registered(self) -> dict[str, str | None]:
        registered = self._ask_for_list()
        if len(registered) > MAX_BOOKIES:
            raise AdminError(Outcome.ERROR, f"{len(registered)} bookies are registered, more than {MAX_BOOKIES}")
        if any(not 0 < len(name) <= _LONGEST_NAME for name in registered):
            raise AdminError(Outcome.ERROR, "a registered bookie has an empty or an endless name")
        return registered

    def _ask_for_list(self) -> dict[str, str | None]:
        """Ask at `bookie_url`; if that fails, ask a few known bookies, because each of them has the list.

        A list without the bookie that returned it is another cluster's, so it does not count.
        """
        try:
            return self._entry.registered()
        except READ_ERRORS.expected:
            known = [(bookie, client) for bookie, client in self._bookies.items() if client is not None]
            for bookie, client in known[:_OTHERS_ASKED]:
                with suppress(*READ_ERRORS.expected):
                    if bookie in (listed := client.registered()):
                        return listed
            raise

    def _renew_clients(self, registered: Mapping[str, str | None]) -> None:
        for gone in self._bookies.keys() - registered.keys():
            if (client := self._bookies.pop(gone)) is not None:
                client.close()
        for bookie in sorted(registered.keys() - self._bookies.keys()):
            url = self._settings.find_url(bookie, registered[bookie])
            self._bookies[bookie] = None if url is None else BookieAdmin(url, self._admin, self._transport)

    def _read_and_publish(self, bookie: str) -> None:
        """Publish the reading of a bookie as soon as it is there, because its age counts from its publication."""
        self._publish_reading(self._read(bookie), bookie=bookie)

    def _read(self, bookie: str) -> BookieDisks:
        client = self._bookies[bookie]
        if client is None:
            return self._failure(bookie, AdminError(Outcome.ERROR, "its host is not known: name its address in urls"))
        try:
            config = client.config()
            if (stranger := find_stranger(bookie, config)) is not None:
                raise AdminError(Outcome.ERROR, f"bookie {stranger} answers at its address: check member_url and urls")
            names = list_ledger_dirs(config)
            shares = client.used_shares() if len(names) > 1 else {}
            thresholds, problem = read_thresholds(config)
            return BookieDisks(
                cluster=self._cluster,
                outcome=Outcome.OK,
                bookie=bookie,
                read_only=client.is_read_only(),
                dirs=find_dirs(names, client.space(), shares),
                thresholds=thresholds,
                detail=problem,
            )
        except ValidationError as error:
            return self._failure(bookie, AdminError(Outcome.ERROR, first_problem(error)))
        except READ_ERRORS.expected as error:
            return self._failure(bookie, error)

    def _failure(self, bookie: str, error: BaseException) -> BookieDisks:
        return BookieDisks(cluster=self._cluster, bookie=bookie, **READ_ERRORS.failure(error))
