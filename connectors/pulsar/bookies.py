"""The collector for a cluster whose ZooKeeper is out of reach: bookies, groups and affinity, all over HTTP."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import httpx
import structlog
from pydantic import Field

from connectors.outcome_log import OutcomeLog
from connectors.poll_metrics import PollMetrics
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.affinity import AffinityWalk
from connectors.pulsar.bookie_http import BookieHttp
from connectors.pulsar.connection import url_problems
from connectors.pulsar.outcomes import AdminError, detail_of, outcome_of
from connectors.redaction import RedactedBlock
from connectors.schedule import ticks
from policies.errors import UserError
from policies.isolation.readings import BookieAffinity, BookieRacks, Bookies, Registration
from policies.observations import Outcome, Reading
from policies.units import PositiveDuration, parse_duration

SOURCE = "headgate/collector/pulsar"
"""The CloudEvents `source` of what this collector reads."""

_OBSERVED = (AdminError, httpx.RequestError, UserError)

_log = structlog.get_logger(__name__)

Kind = TypeVar("Kind", bound=Reading)


class WatchedPulsarBookies(RedactedBlock):
    """What is watched over HTTP, and how often."""

    poll_interval: PositiveDuration = Field(
        default=parse_duration("5s"), description="From one reading of the bookies and their groups to the next."
    )
    affinity_interval: PositiveDuration = Field(
        default=parse_duration("1m"),
        description="From one reading of the namespaces' affinity to the next, and how long one may take: each "
        "namespace is a request or two.",
    )
    bookie_url: str = Field(
        description="`http(s)://…` of the HTTP endpoint (httpServerEnabled) of a bookie, or of a name that leads to "
        "any live one: Pulsar's admin REST does not tell which bookies are registered.",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """An address that is none."""
        yield from url_problems("bookie_url", self.bookie_url)


class PulsarBookieCollector:
    """Reads one cluster over and over and hands on what it read, failures included.

    Over HTTP neither sessions nor transactions of the registrations are known, so a bookie that joins again between two
    readings is not seen to; and a missing znode `/bookies` looks like one without groups.

    Args:
        cluster: its name in the settings.
        settings: what is watched.
        admin: how to reach it; shared with others, so not closed here.
        publish: takes each reading as soon as it is known, from two threads; must not block.
        metrics: shared by all collectors of a process.
    """

    def __init__(
        self,
        cluster: str,
        settings: WatchedPulsarBookies,
        admin: AdminApi,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._admin = admin
        self._bookies = BookieHttp(settings.bookie_url, admin.settings)
        self._publish = publish
        self._metrics = metrics
        self._outcome_log = OutcomeLog()
        self._stop = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set; nothing that goes wrong in a poll ends it."""
        self._stop = stop
        # In a thread of its own: a walk through thousands of namespaces delays no reading of the bookies.
        affinity = threading.Thread(target=self._poll_affinity, name=f"affinity {self._cluster}", daemon=True)
        affinity.start()
        try:
            for _ in ticks(self._settings.poll_interval.total_seconds(), stop.wait):
                self._metrics.survives(self._cluster, self.poll_once)
        finally:
            stop.set()
            affinity.join()
            self.close()

    def poll_once(self) -> None:
        """Read the bookies and their groups, and publish both; each fails by itself."""
        self._read(Bookies, self._read_bookies)
        self._read(BookieRacks, self._read_racks)

    def poll_affinity_once(self) -> None:
        """Read the affinity of all namespaces, and publish it."""
        walk = AffinityWalk(self._admin, self._settings.affinity_interval.total_seconds(), lambda: self._stop.is_set())
        self._read(BookieAffinity, lambda: walk.read(self._cluster))

    def close(self) -> None:
        """Close the connections to the bookies' own endpoint; the next poll opens new ones."""
        self._bookies.close()

    def _read_bookies(self) -> Bookies:
        return Bookies(
            cluster=self._cluster,
            outcome=Outcome.OK,
            writable=tuple(Registration(bookie=bookie) for bookie in self._bookies.writable()),
            read_only=tuple(Registration(bookie=bookie) for bookie in self._bookies.read_only()),
            known=self._admin.known_bookies(),
        )

    def _read_racks(self) -> BookieRacks:
        return BookieRacks(cluster=self._cluster, outcome=Outcome.OK, groups=self._admin.racks())

    def _read(self, kind: type[Kind], read: Callable[[], Kind]) -> None:
        started = time.monotonic()
        try:
            reading = read()
        except _OBSERVED as error:
            reading = kind(cluster=self._cluster, outcome=outcome_of(error), detail=detail_of(error))
        self._announce(reading)
        self._metrics.seconds.labels(self._cluster).observe(time.monotonic() - started)

    def _announce(self, reading: Reading) -> None:
        """Publish a reading, and log it when it ended in another way than the one before."""
        if self._stop.is_set():
            return  # it was cut short
        self._publish(reading)
        self._metrics.polls.labels(self._cluster, reading.outcome.value).inc()
        self._outcome_log.note(reading.event_type, reading, reading=reading.event_type)

    def _poll_affinity(self) -> None:
        for _ in ticks(self._settings.affinity_interval.total_seconds(), self._stop.wait):
            self._metrics.survives(self._cluster, self.poll_affinity_once)
