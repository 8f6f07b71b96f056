"""The collector for a cluster without access to its ZooKeeper: bookies, groups and affinity over HTTP."""

from collections.abc import Callable, Iterator

from pydantic import Field

from connectors.collection.poll_metrics import PollMetrics
from connectors.http.address import url_problems
from connectors.isolation.bookie_collector import BookieCollector, LeftSeconds
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.affinity import AffinityReader
from connectors.pulsar.bookie_http import BookieHttp
from connectors.pulsar.outcomes import READ_ERRORS
from connectors.redaction import RedactedBlock
from policies.bookie_readings import BookieAffinity, BookieRacks, BookieRegistration, Bookies
from policies.observations import Outcome, Reading
from policies.units import PositiveDuration, parse_duration

SOURCE = "headgate/collector/pulsar"
"""The CloudEvents `source` of this collector's readings."""


class WatchedPulsarBookies(RedactedBlock):
    """Settings of the collector over HTTP."""

    poll_interval: PositiveDuration = Field(
        default=parse_duration("5s"), description="Interval between readings of the bookies and their groups."
    )
    affinity_interval: PositiveDuration = Field(
        default=parse_duration("1m"),
        description="Interval between readings of the namespaces' affinity, and time limit of each: a namespace takes "
        "one or two requests.",
    )
    bookie_url: str = Field(
        description="`http(s)://…` of the HTTP endpoint (httpServerEnabled) of a bookie, or of a name that resolves to "
        "any live bookie: Pulsar's admin REST API does not list the registered bookies.",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the problems of the address."""
        yield from url_problems("bookie_url", self.bookie_url)


class PulsarBookieCollector(BookieCollector[LeftSeconds]):
    """Reads a cluster over HTTP.

    HTTP shows neither session nor transaction of a registration, so a bookie that registers again between two readings
    is not noticed. A missing znode `/bookies` looks like one without groups.

    Args:
        admin: the admin REST API; shared with others, so not closed here.
        publish: called with each reading from two threads; must not block.
    """

    def __init__(
        self,
        cluster: str,
        settings: WatchedPulsarBookies,
        admin: AdminApi,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
    ) -> None:
        super().__init__(
            cluster,
            poll_interval=settings.poll_interval,
            poll_limit_seconds=settings.poll_interval.total_seconds(),
            affinity_seconds=settings.affinity_interval.total_seconds(),
            errors=READ_ERRORS,
            publish=publish,
            metrics=metrics,
        )
        self._admin = admin
        self._bookies = BookieHttp(settings.bookie_url, admin.settings)

    def close(self) -> None:
        """Close the connections to the bookies' endpoint; the next poll opens new ones."""
        self._bookies.close()

    def connect(self, left_seconds: LeftSeconds) -> LeftSeconds:
        """Return the time left. Each request connects by itself, with its own timeout."""
        return left_seconds

    def read_bookies(self, source: LeftSeconds) -> Bookies:  # noqa: ARG002 - see `connect`
        """Read the registered bookies from a bookie's endpoint, and all known ones from the admin REST API."""
        return Bookies(
            cluster=self._cluster,
            outcome=Outcome.OK,
            writable=tuple(BookieRegistration(bookie=bookie) for bookie in self._bookies.writable()),
            read_only=tuple(BookieRegistration(bookie=bookie) for bookie in self._bookies.read_only()),
            known=self._admin.known_bookies(),
        )

    def read_racks(self, source: LeftSeconds) -> BookieRacks:  # noqa: ARG002 - see `connect`
        """Read the groups from the admin REST API."""
        return BookieRacks(cluster=self._cluster, outcome=Outcome.OK, groups=self._admin.racks())

    def read_affinity(self, source: LeftSeconds) -> BookieAffinity:
        """Read the affinity with one or two requests for each namespace."""
        return AffinityReader(self._admin, self._affinity_seconds, source).read(self._cluster)
