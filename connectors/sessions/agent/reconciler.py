"""Brings the bundles of a member with a session up to date: looks, and owns again, waits, or releases.

A pass starts from the znodes as they are now. So it may be cut short anywhere, by a failure or another loss of the
session, and the next one continues. A bundle counts as owned only if its znode was read and belongs to the current
session.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog
from kazoo.exceptions import KazooException
from kazoo.protocol.states import WatchedEvent

from connectors.sessions.agent.bundles import LIVE, MOST_ATTEMPTS, Bundle, Bundles, BundleStage, Retry
from connectors.sessions.agent.callbacks import OwnershipCallbacks
from connectors.sessions.agent.nodes import ClientNodes, LostRaceError, NodeRead
from connectors.sessions.agent.reporter import RecoveryReporter
from connectors.sessions.agent.strategy import RecoveryStrategy
from policies.sessions.decisions import OwnershipReason, OwnershipVerdict
from policies.sessions.judge.ownership_table import FIRST_RETRY_MS, BundleRuling, Claimant, NodeNow, retry_ms
from policies.sessions.readings import RecoveryAction

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CurrentSession:
    """The session a member has now."""

    session: str
    since: float
    """When it was established, or established again (seconds of the agent's clock)."""
    limit_ms: Callable[[], int]
    """Gives `wait_ms`, which depends on T: kazoo tells T a moment after there is a connection."""

    @property
    def wait_ms(self) -> int:
        """How long a bundle waits for the node of an old session to go."""
        return self.limit_ms()


class OwnershipReconciler:
    """Looks after the bundles of one member, from the agent's thread only.

    Args:
        member: as the nodes' values name it.
        bundles: the bundles.
        nodes: how they are read and written.
        strategy: who says what to do.
        callbacks: the application's.
        reporter: where it is told.
        clock: seconds.
        on_watch: called by kazoo's thread when a node changes.
    """

    def __init__(
        self,
        member: str,
        bundles: Bundles,
        nodes: ClientNodes,
        strategy: RecoveryStrategy,
        callbacks: OwnershipCallbacks,
        reporter: RecoveryReporter,
        clock: Callable[[], float],
        on_watch: Callable[[WatchedEvent], None],
    ) -> None:
        self._member = member
        self._bundles = bundles
        self._nodes = nodes
        self._strategy = strategy
        self._callbacks = callbacks
        self._reporter = reporter
        self._clock = clock
        self._on_watch = on_watch

    def reconcile(self, current: CurrentSession) -> None:
        """One pass: what others own is let go first, because they may serve it already.

        Raises:
            NoZooKeeperAnswerError: the connection or the session went; nothing is lost by that.
        """
        self._examine(current)
        self.close_given_up()
        self._delete_released(current)
        self._own_again(current)
        self._examine(current)
        self.close_given_up()

    def close_given_up(self) -> None:
        """Have what is given up closed by the application, and forget it; needs no connection."""
        for bundle in self._due(BundleStage.UNLOADING):
            if bundle.opened and not self._closed(bundle):
                continue
            if bundle.reason is None:  # nobody else's: there may be a node of ours
                with self._bundles.lock:
                    bundle.stage, bundle.callback = BundleStage.DELETING, Retry()
            else:
                self._bundles.remove(bundle)

    def call(self, retry: Retry, action: RecoveryAction | None, path: str | None, work: Callable[[], None]) -> bool:
        """Have the application do something; a failure is told, and tried again later."""
        try:
            work()
        except Exception as error:
            retry.failed(self._clock())
            _log.warning("a callback failed", member=self._member, path=path, attempt=retry.failures, error=repr(error))
            if action is not None:
                self._reporter.failed(action, type(error).__name__, path, attempt=retry.failures)
            return False
        return True

    def _examine(self, current: CurrentSession) -> None:
        now = self._clock()
        self._look_at(
            [bundle for bundle in self._bundles.of(LIVE) if bundle.ruling is None and bundle.look.due <= now],
            current,
        )

    def _look_at(self, due: list[Bundle], current: CurrentSession) -> None:
        changes = [bundle.changes for bundle in due]
        answers = self._nodes.read([bundle.path for bundle in due], self._on_watch) if due else {}
        for bundle, before in zip(due, changes, strict=True):
            self._judge(bundle, answers[bundle.path], before, current)

    def _judge(self, bundle: Bundle, answer: NodeRead, changes: int, current: CurrentSession) -> None:
        node = self._node_now(bundle, answer)
        now = self._clock()
        waited_ms = round((now - max(current.since, bundle.claimed_at)) * 1000)
        is_new = bundle.claimed_at >= current.since
        claimant = Claimant(self._member, current.session, max(0, waited_ms), current.wait_ms, is_new)
        ruling = self._strategy.ruling(bundle.path, claimant, node)
        with self._bundles.lock:
            if bundle.changes != changes:
                return  # since it was read; it is due again
            if ruling.verdict is OwnershipVerdict.KEEP:
                bundle.own(current.session)
            elif ruling.verdict is OwnershipVerdict.UNLOAD:
                bundle.give_up(ruling.reason, None if node is None else node.owner)
            elif ruling.verdict is OwnershipVerdict.RE_OWN:
                bundle.want(ruling)
            else:
                bundle.wait(now + _wait_ms(ruling, bundle.unreadable_times) / 1000)

    def suspect_taken(self, session: str) -> None:
        """Look, in a new session, for bundles that another has taken, so that they are not served any longer.

        The next pass does the same and more, but may have to wait for a callback. This may run in any thread.

        Raises:
            NoZooKeeperAnswerError: as `reconcile` does.
        """
        loaded = [bundle for bundle in self._bundles.of(LIVE) if bundle.loaded]
        answers = self._nodes.read([bundle.path for bundle in loaded], self._on_watch) if loaded else {}
        for bundle in loaded:
            node = answers[bundle.path].node
            taken = node is not None and node.exists and node.owner != self._member
            self._bundles.suspect(bundle, session, taken=taken)

    def _node_now(self, bundle: Bundle, answer: NodeRead) -> NodeNow | None:
        """The node as rules want it: with how often in a row it could not be read."""
        node = answer.node
        readable = node is not None and (not node.exists or not node.ephemeral or node.owner is not None)
        bundle.unreadable_times = 0 if readable else bundle.unreadable_times + 1
        if node is None:
            _log.warning("a node is not read", path=bundle.path, obstacle=answer.obstacle)
            return None
        if readable:
            return node
        return NodeNow(
            node.exists, node.ephemeral, None, node.session, node.version, unreadable_times=bundle.unreadable_times
        )

    def _own_again(self, current: CurrentSession) -> None:
        for bundle in self._due(BundleStage.WANTED):
            if bundle.ruling is not None:
                self._re_own(bundle, current)

    def _re_own(self, bundle: Bundle, current: CurrentSession) -> None:
        if bundle.preloaded_for != current.session:
            if not self._preloaded(bundle, current):
                return
            # That may have taken long. Versions start anew with each node, so the node is read right before the write:
            # the longer in between, the likelier another's new node has the version of our old one.
            self._look_at([bundle], current)
        with self._bundles.lock:
            ruling = bundle.ruling
            if ruling is None:
                return
            bundle.lose()  # whatever comes of it is read, and not concluded
            bundle.writing = True
        self._write(bundle, ruling, current)

    def _write(self, bundle: Bundle, ruling: BundleRuling, current: CurrentSession) -> None:
        try:
            if ruling.delete_first and ruling.expected_version is not None:
                self._nodes.replace(bundle.path, bundle.value, ruling.expected_version, current.session)
            else:
                self._nodes.create(bundle.path, bundle.value, current.session)
        except LostRaceError:
            with self._bundles.lock:
                bundle.give_up(OwnershipReason.OTHER_OWNER)
        except KazooException as error:
            bundle.look.failed(self._clock())
            detail = type(error).__name__
            self._reporter.failed(RecoveryAction.RE_OWN, detail, bundle.path, attempt=bundle.look.failures)
        else:
            bundle.look.failures = 0
            self._reporter.ok(RecoveryAction.RE_OWN, bundle.path, attempt=bundle.callback.failures + 1)

    def _preloaded(self, bundle: Bundle, current: CurrentSession) -> bool:
        path, bundle.opened = bundle.path, True
        if self.call(bundle.callback, RecoveryAction.RE_OWN, path, lambda: self._callbacks.preload(path)):
            bundle.preloaded_for = current.session
            return True
        if bundle.callback.failures >= MOST_ATTEMPTS:
            with self._bundles.lock:
                bundle.give_up(None)
        return False

    def _closed(self, bundle: Bundle) -> bool:
        path, reason = bundle.path, bundle.reason
        done = self.call(bundle.callback, RecoveryAction.UNLOAD, path, lambda: self._callbacks.unload(path, reason))
        if done:
            self._reporter.ok(RecoveryAction.UNLOAD, path, attempt=bundle.callback.failures + 1)
        elif bundle.callback.failures >= MOST_ATTEMPTS:
            _log.error("a bundle could not be closed and is left as it is", member=self._member, path=path)
        return done or bundle.callback.failures >= MOST_ATTEMPTS

    def _delete_released(self, current: CurrentSession) -> None:
        for bundle in self._due(BundleStage.DELETING):
            node = self._nodes.read((bundle.path,), self._on_watch)[bundle.path].node
            mine = node is not None and node.exists and node.session == current.session
            try:
                if mine and node is not None and node.version is not None:
                    self._nodes.delete(bundle.path, node.version, current.session)
            except LostRaceError:
                continue  # its value has changed: look again
            except KazooException as error:
                bundle.callback.failed(self._clock())
                _log.warning("a released node is not deleted", path=bundle.path, error=repr(error))
                continue
            if node is not None:
                self._bundles.remove(bundle)
            else:
                bundle.callback.failed(self._clock())

    def _due(self, stage: BundleStage) -> list[Bundle]:
        now = self._clock()
        return [bundle for bundle in self._bundles.of((stage,)) if bundle.callback.due <= now]


def _wait_ms(ruling: BundleRuling, unreadable_times: int) -> int:
    if unreadable_times:
        return retry_ms(unreadable_times)
    if ruling.retry_ms is not None:
        return ruling.retry_ms
    return FIRST_RETRY_MS if ruling.left_ms is None else ruling.left_ms
