"""The reference agent of a broker: follows the directive of a switch, acknowledges it, and reports the broker's state.

A library that runs beside or inside a broker. No Pulsar can write to several BookKeeper clusters yet (PIP-477 is a
proposal). An implementation of it would use this agent, or one that behaves like it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from connectors.bookkeeper.copy_journal import REGISTRY_ROOT
from connectors.switching.registry import Registry
from connectors.zookeeper.json_znodes import ZnodeError
from connectors.zookeeper.session import ZooKeeperSession
from policies.observations import Outcome, Reading
from policies.switching.readings import SwitchBroker, SwitchRegistry

_REACTION_SECONDS = 0.1
"""Longest delay of the reaction to a changed directive, and to the stop event."""

_log = structlog.get_logger(__name__)


class BookKeeperClients(Protocol):
    """The broker's clients of BookKeeper clusters. Called from the agent's thread."""

    def open(self, name: str) -> None:
        """Open a new client of a cluster, and create all new ledgers through it from now on.

        It must be a new one also if a client of the cluster is open: an open client remembers the `HOB` from which it
        takes ids, and would go on with lower ones after the cluster was advanced.

        When it returns, ledgers of other clusters are not written to any more, except open ones that are being closed.
        If the client cannot be opened, it raises any exception, and the broker continues as before.
        """

    def writes_since_ack(self) -> tuple[str, ...]:
        """Return the clusters that were written to since `open` last returned."""

    def reads(self) -> tuple[str, ...]:
        """Return the clusters with open readers."""

    def close(self, name: str) -> None:
        """Close the client of a cluster, if there is one. Raises if it has readers again."""


@dataclass(frozen=True, slots=True)
class _Followed:
    epoch: int
    """Epoch of the directive, committed or not; 0 if there is none."""
    target: str
    failed: bool
    """Whether the client of the target could not be opened."""


class BrokerAgent:
    """The agent of one broker.

    It keeps no state over a restart: a broker that starts again reads its target from the registry.

    Args:
        broker: its name, as the brokers' registrations have it.
        session: of the brokers' ZooKeeper; not closed here.
        report: called in the agent's thread with each `headgate.switch-broker.v1`, such as the result of
            `connectors.kafka.publisher.observations_to`.
        interval_seconds: between two reports. The registry is read as often, in case a watch was lost.
        clock: seconds since 1970: reports of a broker that starts again are numbered on from there.
    """

    def __init__(
        self,
        cluster: str,
        broker: str,
        session: ZooKeeperSession,
        clients: BookKeeperClients,
        report: Callable[[Reading], None],
        *,
        interval_seconds: float = 3.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._broker = broker
        self._registry = Registry(session, cluster)
        self._clients = clients
        self._report = report
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._changed = threading.Event()
        self._followed: _Followed | None = None
        self.writing_to: str | None = None
        """The cluster of the last successful `open`."""
        self._opened_epoch: int | None = None
        self._closed: dict[str, int] = {}
        self._sequence = 0
        self._trouble = ""

    def run(self, stop: threading.Event) -> None:
        """Follow and report until `stop` is set, whatever goes wrong."""
        due = time.monotonic()
        while not stop.is_set():
            if self._changed.is_set() or time.monotonic() >= due:
                self._changed.clear()
                due = time.monotonic() + self._interval_seconds
                try:
                    self.poll_once()
                except Exception:  # a fault in the broker's code or ours must not stop the agent
                    _log.exception("the agent continues after an error", broker=self._broker)
            stop.wait(_REACTION_SECONDS)

    def poll_once(self) -> None:
        """Read the registry, follow it, and report."""
        try:
            for name in ("directive", "committed"):
                self._registry.nodes.watch(f"{REGISTRY_ROOT}/{name}", self._on_change)
            view = self._registry.read()
            if self._follow(view):
                self._close_unneeded(view)
            self._trouble = ""
        except ZnodeError as error:
            if (trouble := str(error)) != self._trouble:
                _log.warning("the registry cannot be followed", broker=self._broker, detail=trouble)
            self._trouble = trouble
        if (followed := self._followed) is None:
            return
        self._sequence = max(self._sequence + 1, int(self._clock() * 1000))
        self._report(
            SwitchBroker(
                cluster=self._cluster,
                outcome=Outcome.OK,
                broker=self._broker,
                sequence=self._sequence,
                epoch=followed.epoch,
                client_init_failed=followed.failed,
                writes=tuple(sorted(set(self._clients.writes_since_ack()))),
                reads=tuple(sorted(set(self._clients.reads()))),
                client_epoch=self._opened_epoch,
            )
        )

    def _on_change(self, _event: object) -> None:
        self._changed.set()  # from kazoo's thread, which must not wait

    def _follow(self, view: SwitchRegistry) -> bool:
        """Open the registry's target. Returns False if the registry is older than the followed directive."""
        epoch, target = 0 if view.directive is None else view.directive.epoch, view.active()
        before = self._followed
        if before is not None and epoch < before.epoch:
            _log.warning("an older directive is ignored", broker=self._broker, epoch=epoch, followed=before.epoch)
            return False
        if target is None or before == _Followed(epoch, target, failed=False):
            return True
        if before is not None:  # a broker that starts must write somewhere, even below znodes that others may change
            self._registry.nodes.require_private(REGISTRY_ROOT)
        try:
            self._clients.open(target)
        except Exception as error:  # the broker's own code
            _log.warning("a BookKeeper client cannot be opened", broker=self._broker, target=target, error=repr(error))
            self._followed = _Followed(epoch, target, failed=True)
            return True
        _log.info("writing", broker=self._broker, target=target, epoch=epoch)
        self._closed.pop(target, None)
        self._opened_epoch = epoch
        self.writing_to, self._followed = target, _Followed(epoch, target, failed=False)
        return True

    def _close_unneeded(self, view: SwitchRegistry) -> None:
        """Close clients with a permit. One from before the last directive is void, because roles have changed."""
        directed = max(0 if view.directive is None else view.directive.epoch, view.committed_epoch)
        permits = self._registry.read_permits()
        in_use = {self.writing_to, view.active(), *self._clients.reads()} if permits else set()
        for name, epoch in permits.items():
            if epoch < directed or name in in_use or self._closed.get(name) == epoch:
                continue
            try:
                self._clients.close(name)
            except Exception as error:  # the broker's own code
                _log.warning("a client was not closed", broker=self._broker, name=name, error=repr(error))
                continue
            self._closed[name] = epoch
            _log.info("a client was closed", broker=self._broker, name=name, epoch=epoch)
