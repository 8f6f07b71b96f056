"""A broker as a switch sees it, by its agent: follows the directive, acknowledges it, and reports the broker's state.

No Pulsar can write to several BookKeeper clusters yet (PIP-477 is a proposal), so it stands in for brokers.
docs/switching.md has the contract that an agent keeps.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import unquote

from connectors.bookkeeper.copy_journal import REGISTRY_ROOT
from connectors.switching.registry import Registry
from connectors.zookeeper.json_znodes import ZnodeError
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.observations import Outcome, Reading
from policies.switching.readings import SwitchBroker, SwitchRegistry
from tests.system.waiting import DEADLINE_SECONDS

_POLL_SECONDS = 0.5


class Broker:
    """A broker of a cluster. It keeps nothing over a restart: it reads its target from the registry again."""

    def __init__(self, cluster: str, name: str, servers: str, report: Callable[[Reading], None]) -> None:
        self.name = name
        self.closed: list[str] = []
        """The BookKeeper clusters whose clients it closed."""
        self._cluster = cluster
        self._connection = ZooKeeperConnection(servers=servers)
        self._report = report
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start_agent(self) -> None:
        """Follow and report from now on."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._stop,), name=f"agent {self.name}")
        self._thread.start()

    def stop_agent(self) -> None:
        """End the agent; the broker stays registered."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(DEADLINE_SECONDS)
            self._thread = None

    def _run(self, stop: threading.Event) -> None:
        session = ZooKeeperSession(self.name, self._connection)
        registry, epoch, target = Registry(session, self._cluster), -1, ""
        try:
            while not stop.wait(_POLL_SECONDS):
                with suppress(ZnodeError):  # it stays where it is, and reports on
                    view = registry.read()
                    directed = 0 if view.directive is None else view.directive.epoch
                    if directed >= epoch and (active := view.active()) is not None:
                        epoch, target = directed, active
                        self._close_permitted(registry, view, target)
                if target:
                    self._tell(epoch, target)
        finally:
            session.close()

    def _tell(self, epoch: int, target: str) -> None:
        """Report that it writes to the target, by a client opened for this epoch, and reads nothing elsewhere."""
        self._report(
            SwitchBroker(
                cluster=self._cluster,
                outcome=Outcome.OK,
                broker=self.name,
                sequence=time.time_ns() // 1_000_000,
                epoch=epoch,
                writes=(target,),
                client_epoch=epoch,
            )
        )

    def _close_permitted(self, registry: Registry, view: SwitchRegistry, target: str) -> None:
        """Close clients with a permit. One from before the last directive is void, because roles have changed."""
        directed = max(0 if view.directive is None else view.directive.epoch, view.committed_epoch)
        for child in registry.nodes.children(f"{REGISTRY_ROOT}/clients"):
            permit = registry.nodes.get(f"{REGISTRY_ROOT}/clients/{child}", dict[str, int])
            name = unquote(child)
            if permit is not None and permit.value["epoch"] >= directed and name not in (target, *self.closed):
                self.closed.append(name)
