"""The settings of the bookie-disks policy in a watched cluster, and its registration."""

from collections.abc import Iterator, Mapping

from pydantic import Field

from connectors.http.client import url_problems
from connectors.pulsar.settings import is_member
from connectors.redaction import RedactedBlock
from connectors.registration import ClusterSetting, ClusterSources, PolicyConnectors, SettingsWarning, warn_of_interval
from policies.bookie_disks import BookieDisksSettings
from policies.bookie_disks.settings import PublishSettings
from policies.units import PositiveDuration, parse_duration

_MEMBER_HOST = "{host}"


class WatchedBookieDisks(RedactedBlock):
    """Settings of the collector of bookies' disks."""

    poll_interval: PositiveDuration = Field(
        default=parse_duration("10s"), description="Interval between readings of all bookies, and time limit of each."
    )
    bookie_url: str = Field(
        description="`http(s)://…` of the HTTP endpoint (httpServerEnabled) of a bookie, or of a name that resolves to "
        "any live bookie: it lists the registered bookies. If it does not answer, known bookies are asked."
    )
    member_url: str = Field(
        default="http://{host}:8000", description="The same of each bookie; `{host}` stands for its host."
    )
    urls: dict[str, str] = Field(
        default_factory=dict, description="Addresses of single bookies, by their ids, in place of `member_url`."
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


def _warnings(settings: BookieDisksSettings, clusters: Mapping[str, ClusterSources]) -> Iterator[SettingsWarning]:
    """Warn of intervals that are too long, and of a hard limit beyond BookKeeper's default for compaction."""
    for name, cluster in clusters.items():
        watched, own = cluster.setting(WatchedBookieDisks), settings.for_cluster(name)
        if watched is None:
            continue
        if watched.poll_interval >= own.validity:
            place = ("clusters", name, "bookie_disks", "poll_interval")
            yield warn_of_interval(place, watched.poll_interval, "bookie_disks", own.validity)
        share = None if own.hard is None else own.hard.available_ratio_below
        if share is not None and share <= _SUSPENDED_FREE:
            yield SettingsWarning(
                ("policies", "bookie_disks", "hard"),
                f"{share:.0%} free is not above {_SUSPENDED_FREE:.0%}, where a bookie suspends compaction by default: "
                f"then deleting data on {name} may free no space; raise it",
            )


_SUSPENDED_FREE = 0.10
"""The free share of a disk at which a bookie suspends major compaction by default."""


def _informed(settings: BookieDisksSettings, clusters: Mapping[str, ClusterSources]) -> BookieDisksSettings:
    """Add whether an actuator can carry the factor out, which the decisions' sentences state, and how fast it stops."""
    acts = {name: cluster.setting(PublishSettings) is not None for name, cluster in clusters.items()}
    return settings.with_defaults(
        {name: {"has_actuator": each, "stop_time": _EFFECT_TIME if each else "0s"} for name, each in acts.items()}
    )


_EFFECT_TIME = "2s"
"""From a publish limit that is set to its effect, as measured for each kind."""


CONNECTORS = PolicyConnectors(
    cluster_settings={
        "publish": ClusterSetting(
            PublishSettings,
            "If present, `headgate run` or `headgate act` carries the factors of placement groups out with Pulsar's "
            "own publish limits. Its token then needs a superuser's rights.",
            needs=("pulsar.admin_url",),
        ),
        "bookie_disks": ClusterSetting(
            WatchedBookieDisks,
            "If present, the disks of its bookies are read over HTTP. The groups of bookies and the namespaces come "
            "from `bookies` or `pulsar_bookies`; without them all bookies are one group.",
            needs=("pulsar.admin_url",),
        ),
    },
    warnings=_warnings,
    informed=_informed,
    commands="deploy.policy_commands.apps:app",
    acts_with=("publish",),
    collectors="connectors.bookie_disks.io:make_collectors",
    actuators="connectors.bookie_disks.io:make_actuators",
    release="connectors.bookie_disks.io:release_publishing",
    probes="connectors.bookie_disks.io:list_probes",
    remedies="connectors.bookie_disks.io:list_remedies",
    view="connectors.bookie_disks.view:BookieDisksView",
)
