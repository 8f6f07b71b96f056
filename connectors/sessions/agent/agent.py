"""The agent: the interface for an application, and the thread that does the work."""

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Self

import structlog
from kazoo.client import KazooClient
from kazoo.protocol.paths import normpath
from kazoo.protocol.states import KazooState, WatchedEvent

from connectors.closing import Closing
from connectors.sessions.agent.bundles import LIVE, Bundle, Bundles, BundleStage
from connectors.sessions.agent.callbacks import NoSessionError, OwnedByOtherError, OwnershipCallbacks, OwnershipError
from connectors.sessions.agent.configuration_store import ConfigurationStore
from connectors.sessions.agent.contact import Heartbeat, NegotiatedTimeout, boot_seconds, session_of
from connectors.sessions.agent.nodes import ClientNodes, NoZooKeeperAnswerError
from connectors.sessions.agent.reconciler import CurrentSession, OwnershipReconciler
from connectors.sessions.agent.recovery import SessionRecovery
from connectors.sessions.agent.reporter import ReadingSink, RecoveryReporter
from connectors.sessions.agent.session_tracker import SessionTracker, StateChange
from connectors.sessions.agent.strategy import LocalStrategy, Outage, RecoveryStrategy
from connectors.sessions.agent.work_queue import WorkQueue
from connectors.zookeeper.owners import owner_member
from policies.errors import UserError
from policies.sessions.decisions import SessionEvent, SessionStatus
from policies.sessions.settings import SessionsSettings, monitor_ms

_IDLE_SECONDS = 1.0
_PAUSE_SECONDS = 0.1
"""After a request that was not answered: kazoo is about to tell that the connection is gone."""

_log = structlog.get_logger(__name__)


class OwnershipAgent(Closing):
    """Holds ephemeral nodes for an application, and brings it safely through the loss of its ZooKeeper session.

    `serving` says whether the application may serve a bundle. How long two members may serve the same one:

    - `fence=False` (PIP-57's choice: rather served twice for a while than not at all): what is loaded is served until
      the agent has read that the node is another's. The other can own it at the earliest T after a server last heard
      from this side, so both may serve for at most (the time without contact - T) + the time from the new connection
      to the answers of two reads, whatever callbacks run. Nothing bounds the time without contact.
    - `fence=True`: nothing is served without a node of the present session, nor later than 5T/6 after the last contact
      as seen from here; no session expires before T after it. So never two at once, as long as the clocks of both
      machines run equally fast to within a sixth, and what `serving` allowed is finished within T/6 or within
      `seconds_left`. In an ensemble its leader may learn of a contact half a tick late, which the sixth covers from
      T = 3 ticks on.

    Neither holds against somebody who deletes a node by hand or closes a foreign session: that is noticed with the
    node's watch or the next contact, and no sooner.

    The client stays the application's: it starts and stops it. All of the agent's writes are conditional; where another
    was faster, the bundle is unloaded. Use it as a context manager, or `start` and `close` it. Any thread may use it;
    only `own` and `release` must not be called from its callbacks.

    Args:
        client: of kazoo. Make the agent before it connects, else T is taken to be what the client asks for.
        member: `host:port` or any other name, which the values of its nodes carry (see `own`).
        callbacks: what the application does when ownership comes and goes.
        cluster: the name reports carry: of the cluster in the loop's settings.
        strategy: who says what to do after a loss; None: the rules that `settings` name, applied here.
        settings: `ownership_rules`, `recovery_order` and `wait_for_deletion` count; without a strategy also
            `on_session_lost: shutdown`, with which `shut_down` is called after `reconnect_limit` failed attempts.
        fence: see above.
        report: takes each `headgate.recovery.v1`, and a `headgate.zk-session.v1` with each new session after a loss,
            from the agent's thread; such as what `connectors.kafka.publisher.observations_to` gives.
        role: the fleet the member belongs to, as the loop's collector of sessions names it.
        configuration: the client of a separate configuration store, where there is one. Nothing is owned there, so the
            loss of its session touches no bundle; after one, `invalidate_caches` is called. It stays the
            application's, too.
        clock: seconds that go on while the machine sleeps.

    Raises:
        UserError: `fence` with a client that is connected already: kazoo tells T only while it connects.
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
                "fence needs to know the session's timeout, which kazoo tells only while it connects: "
                "make the OwnershipAgent before client.start()."
            )
        self.member = member
        self._client = client
        self._configuration = None if configuration is None else ConfigurationStore(configuration, self._caches_are_old)
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
        """How the session stands, seen from here; None until there was one."""
        return self._tracker.status

    def start(self) -> None:
        """Begin to follow the client's session. The client may be started before or after.

        Raises:
            UserError: the strategy cannot start.
        """
        self._strategy.start(partial(self._work.put, self._on_news))
        self._client.add_listener(self._on_state)
        if self._configuration is not None:
            self._configuration.start()
        if self._client.connected:
            self._on_state(KazooState.CONNECTED)
        self._heartbeat.start()
        self._thread.start()

    def close(self) -> None:
        """End the agent; from here on nothing may be served. Nodes stay as long as the client's session."""
        self._client.remove_listener(self._on_state)
        if self._configuration is not None:
            self._configuration.close()
        self._closed = True
        self._work.wake()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()
        self._heartbeat.close()
        self._strategy.close()

    def own(self, path: str, value: bytes, timeout_seconds: float = 30.0) -> bool:
        """Take a bundle: `preload` is called, then its node is created, ephemeral, never in place of another's.

        Args:
            path: the node; parents are created as needed.
            value: JSON that names the member as Pulsar's brokers do: `{"brokerId": "host:port"}`, or a URL.
            timeout_seconds: how long to wait, callbacks included.

        Returns:
            True: it is owned. False: not yet - a node of an old session of this member is in the way, or `preload`
            failed, or the connection went; the agent goes on trying, and calls `unload` when it gives up.

        Raises:
            OwnedByOtherError: its node is another's, or not ephemeral.
            NoSessionError: there is no session at present.
            OwnershipError: it is being released, or held with another value, or nothing was said in time.
            UserError: the path or the value is not what it must be.
        """
        if not _is_path(path):
            raise UserError(f"{path!r} is not the path of a node: write it as /namespace/tenant/name.")
        if owner_member(value) != self.member:
            raise UserError(
                f"the value for {path} does not name {self.member}: "
                f'write it as {{"brokerId": "{self.member}"}}, else nobody can tell whose node it is.'
            )
        return self._work.call(path, partial(self._own, path, value), timeout_seconds)

    def release(self, path: str, timeout_seconds: float = 30.0) -> None:
        """Give a bundle back: it is not served from here on, `unload` is called, and then its node is deleted.

        Without a session, or after failures, the node is deleted later. Harmless for what is not held.

        Raises:
            OwnershipError: `unload` did not end in time; it goes on.
        """
        self._work.call(path, partial(self._release, path), timeout_seconds)

    def owned(self) -> tuple[str, ...]:
        """The bundles whose nodes belong to the present session, as last read."""
        return tuple(bundle.path for bundle in self._bundles.of((BundleStage.OWNED,)))

    def held(self) -> tuple[str, ...]:
        """The bundles that are owned or that the agent tries to own."""
        return tuple(bundle.path for bundle in self._bundles.of(LIVE))

    def serving(self, path: str) -> bool:
        """Whether this member may serve a bundle now: see the bounds above."""
        return self.seconds_left(path) > 0

    def seconds_left(self, path: str) -> float:
        """How long this member may serve a bundle without another contact: 0 for not at all, infinite unless fenced."""
        bundle = self._bundles.get(path)
        if bundle is None or self._closed or self._tracker.status is SessionStatus.CLOSED:
            return 0.0
        with self._bundles.lock:
            stage, session = bundle.stage, bundle.session
            servable = bundle.loaded and not bundle.suspected and stage in LIVE
        if not servable:
            return 0.0
        return math.inf if not self._fence else self._lease_seconds(session)

    def _lease_seconds(self, session: str | None) -> float:
        age_seconds = None if session is None else self._heartbeat.age_seconds(session)
        return 0.0 if age_seconds is None else max(0.0, monitor_ms(self._timeout.ms) / 1000 - age_seconds)

    # From kazoo's threads, which must not wait.

    def _on_state(self, state: str) -> None:
        change = StateChange(state, self._client.client_state, session_of(self._client), self._clock())
        self._heartbeat.beat_now()
        self._work.put(partial(self._observe, change))

    def _caches_are_old(self) -> None:
        self._work.put(self._recovery.reconnected)

    def _on_watch(self, event: WatchedEvent) -> None:
        if event.path is not None and self._bundles.changed(event.path, event.type):
            self._work.wake()

    # From the thread of the heartbeat.

    def _suspect_taken(self, session: str) -> bool:
        try:
            self._reconciler.suspect_taken(session)
        except NoZooKeeperAnswerError:
            return False
        return True

    # All below: the agent's own thread.

    def _wait_ms(self) -> int:
        return self._settings.wait_for_deletion_ms(self._timeout.ms)

    def _run(self) -> None:
        while not self._closed:
            try:
                self._work.run(self._idle_seconds())
                self._advance()
            except NoZooKeeperAnswerError:
                self._paused_until = self._clock() + _PAUSE_SECONDS
            except Exception:  # a mistake in here must not take the application's ownership with it
                _log.exception("the ownership agent goes on after an error", member=self.member)
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
            self._current = CurrentSession(session, change.at, self._wait_ms)
            self._bundles.new_session()
        else:
            self._bundles.look_again()  # watches do not outlive a connection
        if reestablished:
            self._reporter.connected(session, self._timeout.ms)
            self._recovery.begin()
        elif SessionEvent.RECONNECTED in events:
            self._recovery.reconnected()

    def _on_news(self) -> None:
        self._bundles.look_again((BundleStage.WANTED,))

    def _own(self, path: str, value: bytes) -> bool:
        bundle = self._bundles.get(path)
        if bundle is not None and (bundle.stage not in LIVE or bundle.value != value):
            raise OwnershipError(path, "it is being given up, or held with another value: release it first")
        if bundle is None:
            if self._current is None or self._tracker.status is not SessionStatus.ESTABLISHED:
                raise NoSessionError(path, "there is no ZooKeeper session at present, and nothing new is loaded")
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
