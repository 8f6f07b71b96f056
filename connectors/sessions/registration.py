"""The settings of the sessions policy in a watched cluster, and its registration."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from connectors.pulsar.settings import MemberUrl, address_problem, is_member, plain_http_problem
from connectors.registration import ClusterSetting, ClusterSources, PolicyConnectors, SettingsWarning, warn_of_interval
from connectors.zookeeper.settings import ZnodePath
from policies.sessions import SessionsSettings
from policies.sessions.readings import BROKERS, MAX_NAME, UNCHANGED_TREE_INTERVAL
from policies.units import Duration, PositiveDuration, parse_duration

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_ADMIN_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#@]*)?")
_HOST = "{host}"


def _validate_server(server: str) -> str:
    match = _SERVER.fullmatch(server)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ValueError(f"'{server}' is not host:port, such as zk-1.example.org:2181")
    return server


def _validate_admin_url(url: str) -> str:
    if url.count(_HOST) != 1 or not _ADMIN_URL.fullmatch(url.replace(_HOST, "host")):
        raise ValueError("is not http(s)://{host}:port, such as http://{host}:8080, with a literal {host}")
    return url


class Registrations(BaseModel):
    """A tree in which members of one role register: each child is an ephemeral node with the member's name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: ZnodePath = Field(description="The tree's root, below the chroot.")
    role: str = Field(
        min_length=1, max_length=MAX_NAME, description="The role of its members, which names their fleet."
    )


class WatchedSessions(BaseModel):
    """Settings of the session collector, which asks the servers' admin servers; ZooKeeper has them since 3.5."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    poll_interval: PositiveDuration = Field(
        default=parse_duration("1s"), description="Interval between readings; short compared to a session timeout."
    )
    timeout: PositiveDuration = Field(
        default=parse_duration("2s"), description="Time limit for one answer of a server."
    )
    servers: tuple[Annotated[str, AfterValidator(_validate_server)], ...] | None = Field(
        default=None,
        min_length=1,
        description="All servers of the ensemble, as `host:port`, observers included: a session that is connected to a "
        "server not listed here looks disconnected at first. Default: the servers of the connection.",
    )
    admin_url: Annotated[str, AfterValidator(_validate_admin_url)] = Field(
        default="http://{host}:8080",
        description="Address of each server's admin server; `{host}` is the host in `servers`. Its port is "
        "`admin.serverPort` in `zoo.cfg`: 8080 by default, 9990 in Pulsar's own configuration.",
    )
    members: tuple[Registrations, ...] = Field(
        default=(Registrations(path=BROKERS, role="broker"),),
        min_length=1,
        description="The trees in which members register; a name that occurs twice counts in the first tree only.",
    )
    republish: PositiveDuration = Field(
        default=parse_duration("15s"), description="An unchanged reading is published again after this time."
    )
    forget_after: PositiveDuration = Field(
        default=parse_duration("1h"),
        description="A member whose session has ended is no longer reported after this time, unless it comes back.",
    )


class WatchedOwnership(BaseModel):
    """Settings of the ownership collector."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    poll_interval: PositiveDuration = Field(
        default=parse_duration("2s"), description="Interval between readings; unchanged nodes cost little."
    )
    republish: PositiveDuration = Field(
        default=UNCHANGED_TREE_INTERVAL,
        description="An unchanged tree is published again after this time. A member that has come back may wait this "
        "long for decisions about its bundles.",
    )


def _validate_member(member: str) -> str:
    if not is_member(member):
        raise ValueError(f"'{member}' is not host:port, as a broker registers itself")
    return member


class WatchedHealth(BaseModel):
    """Settings of the health collector."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    poll_interval: PositiveDuration = Field(
        default=parse_duration("10s"),
        description="Interval between checks; for each, a broker writes and reads a message of its own.",
    )
    timeout: PositiveDuration = Field(default=parse_duration("5s"), description="Time limit for a broker's answer.")
    member_url: MemberUrl = Field(
        default="http://{member}",
        description="A broker's own address; `{member}` is `host:port` as it registers itself, `{host}` the host.",
    )
    members: tuple[Annotated[str, AfterValidator(_validate_member)], ...] = Field(
        default=(),
        description="Brokers that are always asked, as `host:port`, in addition to the listed ones; loopback addresses "
        "only if `pulsar.admin_url` is one.",
    )
    republish: PositiveDuration = Field(
        default=parse_duration("15s"), description="An unchanged reading is published again after this time."
    )
    forget_after: PositiveDuration = Field(
        default=parse_duration("1h"),
        description="A broker that is not listed and does not answer is no longer asked after this time.",
    )


class UnloadSettings(BaseModel):
    """Settings of the unload actuator. If the block is present, decisions about bundles are carried out."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    per_broker_interval: PositiveDuration = Field(
        default=parse_duration("10s"),
        description="At most one bundle of a broker is unloaded or looked up in this interval; the others wait.",
    )
    grace: Duration = Field(
        default=parse_duration("5s"),
        description="Time after a decision in which the broker may act on its own, before the actuator does.",
    )
    member_url: MemberUrl = Field(
        default="http://{member}",
        description="A broker's own address; `{member}` is `host:port` as it registers itself, `{host}` the host.",
    )


def _warnings(settings: SessionsSettings, clusters: Mapping[str, ClusterSources]) -> Iterator[SettingsWarning]:
    for name, cluster in clusters.items():
        place, validity = ("clusters", name), settings.for_cluster(name).validity
        if cluster.setting(UnloadSettings) is not None and cluster.setting(WatchedOwnership) is None:
            yield SettingsWarning((*place, "unload"), f"has nothing to do: set clusters.{name}.ownership, too")
        for block, kind in POLLED.items():
            watched: Any = cluster.setting(kind)
            if watched is not None and watched.poll_interval >= validity:
                yield warn_of_interval((*place, block, "poll_interval"), watched.poll_interval, "sessions", validity)


POLLED: Mapping[str, type[BaseModel]] = {
    "sessions": WatchedSessions,
    "ownership": WatchedOwnership,
    "health": WatchedHealth,
}


def _mistakes(cluster: ClusterSources) -> Iterator[str]:
    for name, block in (("health", cluster.setting(WatchedHealth)), ("unload", cluster.setting(UnloadSettings))):
        if block is not None:
            yield from plain_http_problem(f"{name}.member_url", block, block.member_url, cluster.pulsar)
        if isinstance(block, WatchedHealth) and cluster.pulsar is not None:
            problems = (address_problem(member, cluster.pulsar.admin_url) for member in block.members)
            yield from (f"health.members: {problem}" for problem in problems if problem is not None)


CONNECTORS = PolicyConnectors(
    cluster_settings={
        "sessions": ClusterSetting(
            WatchedSessions,
            "If present, the ZooKeeper sessions of its brokers, or of other members, are watched.",
            needs=("zookeeper.servers",),
        ),
        "ownership": ClusterSetting(
            WatchedOwnership,
            "If present, the owners of bundles are read through `zookeeper`.",
            needs=("zookeeper.servers",),
        ),
        "health": ClusterSetting(
            WatchedHealth,
            "If present, each broker's health is checked, which finds zombies.",
            needs=("pulsar.admin_url",),
        ),
        "unload": ClusterSetting(
            UnloadSettings,
            "If present, `headgate run` or `headgate act` carries out decisions about bundles through `pulsar`.",
            needs=("pulsar.admin_url",),
        ),
    },
    mistakes=_mistakes,
    warnings=_warnings,
    acts_with=("unload",),
    collectors="connectors.sessions.io:make_collectors",
    actuators="connectors.sessions.io:make_actuators",
    probes="connectors.sessions.io:list_probes",
    remedies="connectors.sessions.io:list_remedies",
    view="connectors.sessions.view:SessionsView",
)
