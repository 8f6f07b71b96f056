"""The content of a broker cluster's registry, for those who only read it."""

from dataclasses import dataclass

from policies.observations import Outcome
from policies.switching.readings import RegisteredCluster, SwitchProgress, SwitchRegistry, WrittenDirective
from policies.switching.state import ClusterStatus


@dataclass(frozen=True, slots=True)
class RegistryView:
    """The content of the registry."""

    clusters: tuple[RegisteredCluster, ...] = ()
    """By name, each with the version of its znode."""
    bootstrap: str | None = None
    directive: WrittenDirective | None = None
    committed_epoch: int = 0
    active_as_proposed: tuple[str, ...] = ()
    """The active clusters by the entries in the proposal's format."""

    def active(self) -> str | None:
        """Return the cluster that brokers write to: the directive's until it is committed, then the registry's."""
        if self.directive is not None and self.directive.epoch > self.committed_epoch:
            return self.directive.target
        return self.committed()

    def committed(self) -> str | None:
        """Return the active cluster by the registry alone: the source of a switch."""
        return next((each.name for each in self.clusters if each.status is ClusterStatus.ACTIVE), None)

    def cluster(self, name: str) -> RegisteredCluster | None:
        """Return a registered cluster by its name."""
        return next((each for each in self.clusters if each.name == name), None)

    def make_reading(self, cluster: str, progress: SwitchProgress | None = None) -> SwitchRegistry:
        """Return the reading for the broker cluster of this name, with the progress of its last switch."""
        return SwitchRegistry(
            cluster=cluster,
            outcome=Outcome.OK,
            clusters=self.clusters,
            bootstrap=self.bootstrap,
            directive=self.directive,
            committed_epoch=self.committed_epoch,
            active_as_proposed=self.active_as_proposed,
            progress=progress,
        )
