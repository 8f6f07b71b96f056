"""The agent: the interface for an application, and the agent's thread."""

import math
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Self

import structlog
from kazoo.client import KazooClient
from kazoo.protocol.paths import normpath
from kazoo.protocol.states import KazooState, WatchedEvent

from connectors.sessions.agent.bundles import LIVE, Bundle, Bundles, BundleStage
from connectors.sessions.agent.callbacks import NoSessionError, OwnedByOtherError, OwnershipCallbacks, OwnershipError
from connectors.sessions.agent.contact import Heartbeat, NegotiatedTimeout, boot_seconds, read_session
from connectors.sessions.agent.nodes import ClientNodes, NoZooKeeperAnswerError
from connectors.sessions.agent.reconciler import CurrentSession, OwnershipReconciler
from connectors.sessions.agent.recovery import SessionRecovery
from connectors.sessions.agent.reporter import ReadingSink, RecoveryReporter
from connectors.sessions.agent.session_tracker import ConfigurationStore, SessionTracker, StateChange
from connectors.sessions.agent.strategy import LocalStrategy, Outage, RecoveryStrategy
from connectors.sessions.agent.work_queue import WorkQueue
from connectors.zookeeper.owners import owner_member
from policies.errors import UserError
from policies.sessions.decisions import SessionEvent, SessionStatus
from policies.sessions.settings import SessionsSettings, monitor_ms

_IDLE_SECONDS = 1.0
_PAUSE_SECONDS = 0.1
"""Pause after a request without an answer, until kazoo reports the lost connection."""

_log = structlog.get_logger(__name__)


class OwnershipAgent(AbstractContextManager["OwnershipAgent"]):
    """Owns ephemeral nodes for an application, and recovers its ownership after the loss of its ZooKeeper session.

    `serving` returns whether the application may serve a bundle. How long may two members serve the same bundle?

    - `fence=False` (PIP-57 prefers that a bundle is served twice for a while to not at all): a loaded bundle is served
      until the agent has read that the node belongs to another member. The other member can own it at the earliest T
      after a server last heard from this one. So both may serve it for at most (the time without contact - T) + the
      time from the new connection to the answers of two reads, whatever callbacks run. The time without contact has no
      bound.
    - `fence=True`: no bundle is served without a node of the present session, nor later than 5T/6 after the last
      contact as this side measures it. No session expires before T after that contact. So two members never serve it at
      once, on two conditions: the clocks of both machines run equally fast to within a sixth, and the application ends
      what `serving` allowed within T/6 or within `seconds_left`. In an ensemble the leader may learn of a contact half
      a tick late, which the sixth covers from T = 3 ticks on.

    Neither bound holds if an operator deletes a node by hand or closes a foreign session. The agent notices that by the
    node's watch or the next contact.

    The application starts and stops the client. All writes of the agent are conditional; if another member was faster,
    the bundle is unloaded. Use the agent as a context manager, or `start` and `close` it. Any thread may use it, but
    `acquire` and `release` must not be called from its callbacks.

    Args:
        client: of kazoo. Make the agent before the client connects; otherwise the requested timeout counts as T.
        member: `host:port` or any other name, which the values of its nodes contain (see `acquire`).
        callbacks: the application's reactions to changes of ownership.
        cluster: the cluster's name in the loop's settings, for reports.
        strategy: decides after a loss; None: a `LocalStrategy` with `settings`.
        settings: it uses `ownership_rules`, `recovery_order` and `wait_for_deletion`; without a strategy also
            `on_session_lost: shutdown`, with which `shut_down` is called after `reconnect_limit` failed attempts.
        report: called in the agent's thread with each `headgate.recovery.v1`, and with a `headgate.zk-session.v1` for
            each new session after a loss; such as the result of `connectors.kafka.publisher.observations_to`.
        role: the member's fleet, as in the loop's session collector.
        configuration: the client of a separate configuration store, if there is one. The member owns no nodes there, so
            the loss of its session affects no bundle; afterwards `invalidate_caches` is called. The application starts
            and stops this client, too.
        clock: seconds that continue while the machine sleeps.

    Raises:
        UserError: `fence` with a client that is connected already, because kazoo provides T only while it connects.
    """

    def __init__(
        self,
        client: KazooClient,
        member: str,
        callbacks: OwnershipCallbacks,
        *,
        cluster: str = "local",
        strategy: RecoveryStrategy | None = None,
        settings: SessionsSettings | None = None,
        fence: bool = False,
        report: ReadingSink | None = None,
        role: str = "broker",
        configuration: KazooClient | None = None,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        if fence and client.connected:
            raise UserError(
                "fence needs the session's timeout, which kazoo provides only while it connects: "
                "make the OwnershipAgent before client.start()."
            )
        self.member = member
        self._client = client
        self._configuration = (
            None
            if configuration is None
            else ConfigurationStore(configuration, lambda: self._work.put(self._recovery.begin_reconnected))
        )
        self._settings = settings or SessionsSettings()
        self._fence = fence
        self._clock = clock
        self._strategy = strategy or LocalStrategy(self._settings)
        self._timeout = NegotiatedTimeout(client)
        self._heartbeat = Heartbeat(client, self._timeout, clock, self._suspect_taken)
        self._tracker = SessionTracker(self._timeout, clock)
        self._bundles = Bundles()
        reporter = self._reporter = RecoveryReporter(cluster, member, report, role=role)
        nodes = ClientNodes(client, lambda: self._timeout.ms / 1000)
        self._reconciler = OwnershipReconciler(
            member, self._bundles, nodes, self._strategy, callbacks, reporter, clock, self._on_watch
        )
        outage = partial(self._outage, cluster, role)
        self._recovery = SessionRecovery(
            self._reconciler, self._bundles, self._strategy, callbacks, reporter, clock, outage
        )
        self._current: CurrentSession | None = None
        self._paused_until = 0.0
        self._work = WorkQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"ownership {member}", daemon=True)
        self._work.run_in(self._thread)

    def __enter__(self) -> Self:
        self.start()
        return self

    @property
    def status(self) -> SessionStatus | None:
        """The status of the session as this side sees it; None before the first one."""
        return self._tracker.status

    def start(self) -> None:
        """Start to follow the client's session. The client may be started before or after.

        Raises:
            UserError: the strategy cannot start.
        """
        look_again = partial(self._bundles.look_again, (BundleStage.WANTED,))
        self._strategy.start(partial(self._work.put, look_again))
        self._client.add_listener(self._on_state)
        if self._configuration is not None:
            self._configuration.start()
        if self._client.connected:
            self._on_state(KazooState.CONNECTED)
        self._heartbeat.start()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the agent; no bundle may be served any more. Nodes stay as long as the client's session."""
        self._client.remove_listener(self._on_state)
        if self._configuration is not None:
            self._configuration.close()
        self._closed = True
        self._work.wake()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()
        self._heartbeat.close()
        self._strategy.close()

    def acquire(self, path: str, value: bytes, timeout_seconds: float = 30.0) -> bool:
        """Acquire a bundle: calls `preload`, then creates its ephemeral node unless another member has one.

        Args:
            path: the node; parents are created as needed.
            value: JSON that names the member as Pulsar's brokers do: `{"brokerId": "host:port"}`, or a URL.
            timeout_seconds: time limit, callbacks included.

        Returns:
            True if it is owned. False if not yet, because of a node of an old session of this member, a failed
            `preload`, or a lost connection. The agent continues to try, and calls `unload` when it gives up.

        Raises:
            OwnedByOtherError: its node belongs to another member, or is not ephemeral.
            NoSessionError: there is no session at present.
            OwnershipError: it is being released, or held with another value, or the time limit was reached.
            UserError: the path or the value is invalid.
        """
        if not _is_path(path):
            raise UserError(f"{path!r} is not the path of a node: write it as /namespace/tenant/name.")
        if owner_member(value) != self.member:
            raise UserError(
                f"the value for {path} does not name {self.member}: "
                f'write it as {{"brokerId": "{self.member}"}}, otherwise the owner of the node cannot be identified.'
            )
        return self._work.call(path, partial(self._acquire, path, value), timeout_seconds)

    def release(self, path: str, timeout_seconds: float = 30.0) -> None:
        """Release a bundle: it is not served any more, `unload` is called, and then its node is deleted.

        Without a session, or after failures, the node is deleted later. A bundle that is not held is ignored.

        Raises:
            OwnershipError: `unload` did not end in time; it continues.
        """
        self._work.call(path, partial(self._release, path), timeout_seconds)

    def owned(self) -> tuple[str, ...]:
        """Return the bundles whose nodes belonged to the present session at their last read."""
        return tuple(bundle.path for bundle in self._bundles.select((BundleStage.OWNED,)))

    def held(self) -> tuple[str, ...]:
        """Return the bundles that are owned or that the agent tries to own."""
        return tuple(bundle.path for bundle in self._bundles.select(LIVE))

    def serving(self, path: str) -> bool:
        """Whether this member may serve a bundle now; see the bounds above."""
        return self.seconds_left(path) > 0

    def seconds_left(self, path: str) -> float:
        """Return how long this member may serve a bundle without another contact: 0 to infinite (no fence)."""
        bundle = self._bundles.get(path)
        if bundle is None or self._closed or self._tracker.status is SessionStatus.CLOSED:
            return 0.0
        with self._bundles.lock:
            stage, session = bundle.stage, bundle.session
            servable = bundle.loaded and not bundle.suspected and stage in LIVE
        if not servable:
            return 0.0
        if not self._fence:
            return math.inf
        age_seconds = None if session is None else self._heartbeat.age_seconds(session)
        return 0.0 if age_seconds is None else max(0.0, monitor_ms(self._timeout.ms) / 1000 - age_seconds)

    # --- called from kazoo's threads, which must not wait

    def _on_state(self, state: str) -> None:
        change = StateChange(state, self._client.client_state, read_session(self._client), self._clock())
        self._heartbeat.beat_now()
        self._work.put(partial(self._observe, change))

    def _on_watch(self, event: WatchedEvent) -> None:
        if event.path is not None and self._bundles.handle_watch(event.path, event.type):
            self._work.wake()

    # --- called from the heartbeat's thread

    def _suspect_taken(self, session: str) -> bool:
        try:
            self._reconciler.suspect_taken(session)
        except NoZooKeeperAnswerError:
            return False
        return True

    # --- called from the agent's own thread

    def _run(self) -> None:
        while not self._closed:
            try:
                self._work.run(self._idle_seconds())
                self._advance()
            except NoZooKeeperAnswerError:
                self._paused_until = self._clock() + _PAUSE_SECONDS
            except Exception:  # a fault of the agent must not end the application's ownership
                _log.exception("the ownership agent continues after an error", member=self.member)
                self._paused_until = self._clock() + _IDLE_SECONDS

    def _idle_seconds(self) -> float:
        dues = [self._tracker.due]
        if self._tracker.connected:
            dues += [self._bundles.next_due(), self._recovery.due]
        soonest = max(min(due for due in (*dues, math.inf) if due is not None), self._paused_until)
        return min(max(soonest - self._clock(), 0.0), _IDLE_SECONDS)

    def _advance(self) -> None:
        self._tracker.pass_time()
        if self._tracker.lost_at is not None:
            self._recovery.report_no_session(self._tracker.lost_at, self._timeout.ms)
        self._recovery.shut_down_if_decided(self._tracker.session, self._tracker.lost_at)
        if self._clock() < self._paused_until:
            return
        if self._current is None or not self._tracker.connected:
            self._reconciler.close_given_up()
            return
        self._reconciler.reconcile(self._current)
        self._recovery.advance(self._current)

    def _outage(self, cluster: str, role: str, lost_at: float, attempts: int) -> Outage:
        session, lost_seconds = self._tracker.session, self._clock() - lost_at
        return Outage(cluster, self.member, role, session, self._timeout.ms, lost_seconds, attempts)

    def _observe(self, change: StateChange) -> None:
        events = self._tracker.observe(change)
        session = self._tracker.session
        _log.info("ZooKeeper session", member=self.member, session=session, status=self._tracker.status)
        if not self._tracker.connected or session is None:
            return
        reestablished = SessionEvent.SESSION_REESTABLISHED in events
        if self._current is None or self._current.session != session or reestablished:
            self._current = CurrentSession(
                session, change.at, lambda: self._settings.wait_for_deletion_ms(self._timeout.ms)
            )
            self._bundles.begin_session()
        else:
            self._bundles.look_again()  # watches do not survive a connection
        if reestablished:
            self._reporter.report_session(session, self._timeout.ms)
            self._recovery.begin()
        elif SessionEvent.RECONNECTED in events:
            self._recovery.begin_reconnected()

    def _acquire(self, path: str, value: bytes) -> bool:
        bundle = self._bundles.get(path)
        if bundle is not None and (bundle.stage not in LIVE or bundle.value != value):
            raise OwnershipError(path, "it is being released, or held with another value: release it first")
        if bundle is None:
            if self._current is None or self._tracker.status is not SessionStatus.ESTABLISHED:
                raise NoSessionError(path, "there is no ZooKeeper session at present, so no new bundle is loaded")
            bundle = Bundle(path, value, self._clock())
            self._bundles.add(bundle)
            self._try_now(self._current)
        if bundle.stage is BundleStage.UNLOADING and bundle.reason is not None:
            raise OwnedByOtherError(path, bundle.owner, bundle.reason)
        return bundle.stage is BundleStage.OWNED

    def _release(self, path: str) -> bool:
        bundle = self._bundles.get(path)
        if bundle is not None and bundle.stage in LIVE:
            with self._bundles.lock:
                bundle.give_up(None)
            self._reconciler.close_given_up()
            if self._current is not None and self._tracker.connected:
                self._try_now(self._current)
        return True

    def _try_now(self, current: CurrentSession) -> None:
        try:
            self._reconciler.reconcile(current)
        except NoZooKeeperAnswerError:
            self._paused_until = self._clock() + _PAUSE_SECONDS


def _is_path(path: str) -> bool:
    try:
        return path.startswith("/") and path != "/" and str(normpath(path)) == path
    except ValueError:
        return False
