"""The collector for a cluster whose ZooKeeper is out of reach: bookies, groups and affinity, all over HTTP."""

from collections.abc import Callable, Iterator

from pydantic import Field

from connectors.collection.poll_metrics import PollMetrics
from connectors.isolation.bookie_collector import BookieCollector, LeftSeconds
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.affinity import AffinityReader
from connectors.pulsar.bookie_http import BookieHttp
from connectors.pulsar.connection import url_problems
from connectors.pulsar.outcomes import READ_ERRORS
from connectors.redaction import RedactedBlock
from policies.isolation.readings import BookieAffinity, BookieRacks, BookieRegistration, Bookies
from policies.observations import Outcome, Reading
from policies.units import PositiveDuration, parse_duration

SOURCE = "headgate/collector/pulsar"
"""The CloudEvents `source` of what this collector reads."""


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


class PulsarBookieCollector(BookieCollector[LeftSeconds]):
    """Reads a cluster over HTTP.

    Neither sessions nor transactions of the registrations are known there, so a bookie that joins again between two
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
        poll_seconds = settings.poll_interval.total_seconds()
        self._affinity_limit_seconds = settings.affinity_interval.total_seconds()
        super().__init__(
            cluster,
            poll_seconds=poll_seconds,
            poll_limit_seconds=poll_seconds,
            affinity_seconds=self._affinity_limit_seconds,
            errors=READ_ERRORS,
            publish=publish,
            metrics=metrics,
        )
        self._admin = admin
        self._bookies = BookieHttp(settings.bookie_url, admin.settings)

    def close(self) -> None:
        """Close the connections to the bookies' own endpoint; the next poll opens new ones."""
        self._bookies.close()

    def connect(self, left_seconds: LeftSeconds) -> LeftSeconds:
        """Each request connects by itself, and has its own time-out."""
        return left_seconds

    def read_bookies(self, source: LeftSeconds) -> Bookies:  # noqa: ARG002 - see `connect`
        """Who is registered, from a bookie's own endpoint; who ever was, from the admin REST."""
        return Bookies(
            cluster=self.cluster,
            outcome=Outcome.OK,
            writable=tuple(BookieRegistration(bookie=bookie) for bookie in self._bookies.writable()),
            read_only=tuple(BookieRegistration(bookie=bookie) for bookie in self._bookies.read_only()),
            known=self._admin.known_bookies(),
        )

    def read_racks(self, source: LeftSeconds) -> BookieRacks:  # noqa: ARG002 - see `connect`
        """The groups, from the admin REST."""
        return BookieRacks(cluster=self.cluster, outcome=Outcome.OK, groups=self._admin.racks())

    def read_affinity(self, source: LeftSeconds) -> BookieAffinity:
        """A request or two for each namespace."""
        return AffinityReader(self._admin, self._affinity_limit_seconds, source).read(self.cluster)
