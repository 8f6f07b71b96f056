"""Readings of bookies, groups and affinity at seconds after a fixed start, and a run of the policy over them."""

from collections.abc import Callable, Mapping
from typing import Any

from policies.bookie_readings import NamespaceAffinity
from policies.decisions import Alert, AlertStatus
from policies.isolation.decisions import BookieQuarantine, Placement
from policies.isolation.policy import IsolationPolicy
from policies.isolation.readings import NamespacePromise
from policies.isolation.settings import IsolationSettings, RuleSet
from policies.isolation.state import IsolationState
from policies.observations import Observation
from tests.policies.cases_of_bookies import CLUSTER as CLUSTER
from tests.policies.cases_of_bookies import affinity as affinity
from tests.policies.cases_of_bookies import racks as racks
from tests.policies.cases_of_bookies import registered
from tests.policies.cases_of_bookies import to as to
from tests.policies.virtual_run import START as START
from tests.policies.virtual_run import VirtualRun, merge, second_of
from tests.policies.virtual_run import at as at

bookies = registered
LONG: Mapping[str, Any] = {"validity": "1d"}
"""Readings that do not run out while something else is looked at."""
ON = {"quarantine": "on"}
GROUPS = {"default": "bk1 bk2", "shared": "bk6 bk7"}
BASE = "bk1 bk2 bk6 bk7"
"""Enough for all of `NAMESPACES`."""
NAMESPACES = {"acme/a": "default", "acme/b": "shared"}


def isolation(*blocks: Mapping[str, Any], **more: Any) -> IsolationSettings:
    return IsolationSettings.model_validate(merge(*blocks, **more))


def promise(seconds: float, namespace: str, rules: str | None) -> Observation:
    """A command; None withdraws the last one."""
    given = NamespacePromise(
        cluster=CLUSTER, namespace=namespace, promise=None if rules is None else RuleSet(rules), actor="ada", reason=""
    )
    return Observation(f"promise-{namespace}@{seconds:g}", at(seconds), given)


def everything(
    seconds: float, writable: str, groups: Mapping[str, str] | None, namespaces: Mapping[str, NamespaceAffinity | str]
) -> tuple[Observation, ...]:
    return bookies(seconds, writable), racks(seconds, groups), affinity(seconds, namespaces)


class Run(VirtualRun[IsolationState]):
    """Steps the policy at each reading, and at each `wake_at` in between."""

    def __init__(self, *blocks: Mapping[str, Any], **more: Any) -> None:
        self.settings = isolation(*blocks, **more)
        super().__init__(IsolationPolicy(CLUSTER, self.settings))

    def with_settings(self, *blocks: Mapping[str, Any], **more: Any) -> "Run":
        """Continue with the same state and other settings."""
        self.settings = isolation(*blocks, **more)
        self.policy = IsolationPolicy(CLUSTER, self.settings)
        return self

    def twice(self, second: float, *reads: Callable[[float], Observation], apart: float = 10) -> "Run":
        """See these readings now and once more, so that what they show is confirmed."""
        for at_second in (second, second + apart):
            self.see(*(read(at_second) for read in reads))
        return self

    def placements(self, namespace: str | None = None) -> list[Placement]:
        return [d for d in self.published if isinstance(d, Placement) and namespace in (None, d.namespace)]

    def placement(self, namespace: str) -> Placement:
        return self.placements(namespace)[-1]

    def quarantines(self, bookie: str | None = None) -> list[BookieQuarantine]:
        return [d for d in self.published if isinstance(d, BookieQuarantine) and bookie in (None, d.bookie)]

    def verdicts(self) -> list[tuple[float, str, str, str]]:
        """(second, bookie, verdict, reason) of every decision on quarantine."""
        return [(second_of(d), d.bookie, d.verdict.value, d.reason.value) for d in self.quarantines()]

    def said(self, alert: str) -> list[tuple[float, str, str, str]]:
        """(second, subject, status, severity) of every record of one alert."""
        return [(second_of(a), a.subject, a.status.value, a.severity.value) for a in self.alerts if a.alert == alert]

    def firing(self) -> dict[tuple[str, str], str]:
        """Severity by (alert, subject) of the alerts that fire now."""
        latest = {(a.alert, a.subject): a for a in self.alerts}
        return {key: a.severity.value for key, a in latest.items() if a.status is AlertStatus.FIRING}

    def latest(self, alert: str) -> Alert:
        return [a for a in self.alerts if a.alert == alert][-1]


def joined(writable: str = "bk11", *blocks: Any, **more: Any) -> Run:
    """The join times of bookies that were there from the start, without a group, and that no namespace needs."""
    return Run(LONG, ON, *blocks, **more).see(*everything(0, f"{BASE} {writable}", GROUPS, NAMESPACES))


def placement_of(writable: str, said: Any, groups: Any = None, **settings: Any) -> Placement:
    """The placement of one namespace."""
    run = Run(settings).see(*everything(0, writable, GROUPS if groups is None else groups, {"acme/a": said}))
    return run.placement("acme/a")
