"""The registry of a broker cluster as read, and the outcome of a write to it."""

from dataclasses import dataclass
from enum import StrEnum

from policies.observations import Outcome
from policies.switching.readings import RegisteredCluster, SwitchRegistry, WrittenDirective
from policies.switching.state import ClusterStatus


@dataclass(frozen=True, slots=True)
class RegistryView:
    """The registry as it was read."""

    clusters: tuple[RegisteredCluster, ...] = ()
    """By name, each with the version of its znode."""
    bootstrap: str | None = None
    directive: WrittenDirective | None = None
    committed_epoch: int = 0
    active_as_proposed: tuple[str, ...] = ()
    """Which clusters are active by the entries where the proposal has them."""

    def active(self) -> str | None:
        """The one cluster brokers write to: the directive's while it is not committed, else the registry's."""
        if self.directive is not None and self.directive.epoch > self.committed_epoch:
            return self.directive.target
        return self.committed()

    def committed(self) -> str | None:
        """The cluster that is active by the registry alone: where a switch begins."""
        return next((each.name for each in self.clusters if each.status is ClusterStatus.ACTIVE), None)

    def cluster(self, name: str) -> RegisteredCluster | None:
        """A registered cluster by its name."""
        return next((each for each in self.clusters if each.name == name), None)

    def reading(self, cluster: str) -> SwitchRegistry:
        """As an observation, for the broker cluster of this name."""
        return SwitchRegistry(
            cluster=cluster,
            outcome=Outcome.OK,
            clusters=self.clusters,
            bootstrap=self.bootstrap,
            directive=self.directive,
            committed_epoch=self.committed_epoch,
            active_as_proposed=self.active_as_proposed,
        )


@dataclass(frozen=True, slots=True)
class ClusterWrite:
    """An entry that is there now."""

    version: int
    bootstrap: str | None
    """The bootstrap cluster that is in force."""


@dataclass(frozen=True, slots=True)
class StatusWrite:
    """How a write ended that may be refused."""

    done: bool
    """Also when it was there before."""
    detail: str = ""
    """Why not."""


class DirectiveOutcome(StrEnum):
    """How the writing of a directive ended."""

    WRITTEN = "written"
    ALREADY_THERE = "already_there"
    SUPERSEDED = "superseded"
    """One of an equal or later epoch stands, and stays."""


@dataclass(frozen=True, slots=True)
class DirectiveWrite:
    """What came of a directive."""

    outcome: DirectiveOutcome
    standing: WrittenDirective | None
    """The one that is in force now."""
    detail: str = ""
