"""Reconciles the bundles of a member with a session: reads their znodes, and owns again, waits, or releases.

A pass starts from the present znodes. So a failure or another loss of the session may interrupt it anywhere, and the
next pass continues. A bundle counts as owned only if its znode was read and belongs to the current session.
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
    """The present session of a member."""

    session: str
    since: float
    """Time when it was established, in seconds of the agent's clock."""
    wait_ms: Callable[[], int]
    """Returns how long a bundle waits until the node of an old session vanishes. It depends on T, which kazoo provides
    a moment after the connection."""


class OwnershipReconciler:
    """Reconciles the bundles of one member. For the agent's thread, except `suspect_taken`.

    Args:
        member: its name in the nodes' values.
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
        """Run one pass. It first gives up the bundles that others own, because they may serve them already.

        Raises:
            NoZooKeeperAnswerError: connection or session was lost; the next pass continues.
        """
        self._examine(current)
        self.close_given_up()
        self._delete_released(current)
        for bundle in self._due(BundleStage.WANTED):
            if bundle.ruling is not None:
                self._re_own(bundle, current)
        self._examine(current)
        self.close_given_up()

    def close_given_up(self) -> None:
        """Have the application close the bundles that are given up, and drop them; needs no connection."""
        for bundle in self._due(BundleStage.UNLOADING):
            if bundle.opened and not self._unload(bundle):
                continue
            if bundle.reason is None:  # no other member owns it: our node may still exist
                with self._bundles.lock:
                    bundle.stage, bundle.callback = BundleStage.DELETING, Retry()
            else:
                self._bundles.remove(bundle)

    def call(self, retry: Retry, action: RecoveryAction | None, path: str | None, work: Callable[[], None]) -> bool:
        """Call the application. Returns False after a failure, which is reported and retried later."""
        try:
            work()
        except Exception as error:
            retry.fail(self._clock())
            _log.warning("a callback failed", member=self._member, path=path, attempt=retry.failures, error=repr(error))
            if action is not None:
                self._reporter.report_failure(action, type(error).__name__, path, attempt=retry.failures)
            return False
        return True

    def _examine(self, current: CurrentSession) -> None:
        now = self._clock()
        self._read_nodes(
            [bundle for bundle in self._bundles.select(LIVE) if bundle.ruling is None and bundle.look.due <= now],
            current,
        )

    def _read_nodes(self, due: list[Bundle], current: CurrentSession) -> None:
        changes = [bundle.changes for bundle in due]
        answers = self._nodes.read([bundle.path for bundle in due], self._on_watch) if due else {}
        for bundle, before in zip(due, changes, strict=True):
            self._judge(bundle, answers[bundle.path], before, current)

    def _judge(self, bundle: Bundle, answer: NodeRead, changes: int, current: CurrentSession) -> None:
        node = self._count_unreadable(bundle, answer)
        now = self._clock()
        waited_ms = round((now - max(current.since, bundle.claimed_at)) * 1000)
        is_new = bundle.claimed_at >= current.since
        claimant = Claimant(self._member, current.session, max(0, waited_ms), current.wait_ms(), is_new)
        ruling = self._strategy.ruling(bundle.path, claimant, node)
        with self._bundles.lock:
            if bundle.changes != changes:
                return  # it has changed since the read, and is due again
            if ruling.verdict is OwnershipVerdict.KEEP:
                bundle.mark_owned(current.session)
            elif ruling.verdict is OwnershipVerdict.UNLOAD:
                bundle.give_up(ruling.reason, None if node is None else node.owner)
            elif ruling.verdict is OwnershipVerdict.RE_OWN:
                bundle.want(ruling)
            else:
                bundle.wait(now + _retry_in_ms(ruling, bundle.unreadable_times) / 1000)

    def suspect_taken(self, session: str) -> None:
        """Find, in a new session, the bundles that another member has taken, so that they are not served any more.

        The next pass does the same and more, but may have to wait for a callback. Any thread may call this.

        Raises:
            NoZooKeeperAnswerError: as `reconcile` does.
        """
        loaded = [bundle for bundle in self._bundles.select(LIVE) if bundle.loaded]
        answers = self._nodes.read([bundle.path for bundle in loaded], self._on_watch) if loaded else {}
        for bundle in loaded:
            node = answers[bundle.path].node
            taken = node is not None and node.exists and node.owner not in (None, self._member)
            self._bundles.suspect(bundle, session, taken=taken)

    def _count_unreadable(self, bundle: Bundle, answer: NodeRead) -> NodeNow | None:
        """Return the node, with the number of successive readings in which it had no readable owner."""
        node = answer.node
        readable = node is not None and (not node.exists or not node.ephemeral or node.owner is not None)
        bundle.unreadable_times = 0 if readable else bundle.unreadable_times + 1
        if node is None:
            _log.warning("a node cannot be read", path=bundle.path, obstacle=answer.obstacle)
            return None
        if readable:
            return node
        return NodeNow(
            node.exists, node.ephemeral, None, node.session, node.version, unreadable_times=bundle.unreadable_times
        )

    def _re_own(self, bundle: Bundle, current: CurrentSession) -> None:
        if bundle.preloaded_for != current.session:
            if not self._preload(bundle, current):
                return
            # `preload` may take long, so the node is read again right before the write. Versions of a new node start at
            # 0: after a long time, another member's new node may have the version of our old one.
            self._read_nodes([bundle], current)
        with self._bundles.lock:
            ruling = bundle.ruling
            if ruling is None:
                return
            bundle.lose()  # the result of the write is read, not assumed
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
            bundle.look.fail(self._clock())
            detail = type(error).__name__
            self._reporter.report_failure(RecoveryAction.RE_OWN, detail, bundle.path, attempt=bundle.look.failures)
        else:
            bundle.look.failures = 0
            self._reporter.report_ok(RecoveryAction.RE_OWN, bundle.path, attempt=bundle.callback.failures + 1)

    def _preload(self, bundle: Bundle, current: CurrentSession) -> bool:
        path, bundle.opened = bundle.path, True
        if self.call(bundle.callback, RecoveryAction.RE_OWN, path, lambda: self._callbacks.preload(path)):
            bundle.preloaded_for = current.session
            return True
        if bundle.callback.failures >= MOST_ATTEMPTS:
            with self._bundles.lock:
                bundle.give_up(None)
        return False

    def _unload(self, bundle: Bundle) -> bool:
        path, reason = bundle.path, bundle.reason
        done = self.call(bundle.callback, RecoveryAction.UNLOAD, path, lambda: self._callbacks.unload(path, reason))
        if done:
            self._reporter.report_ok(RecoveryAction.UNLOAD, path, attempt=bundle.callback.failures + 1)
        elif bundle.callback.failures >= MOST_ATTEMPTS:
            _log.error("a bundle could not be closed and stays open", member=self._member, path=path)
        return done or bundle.callback.failures >= MOST_ATTEMPTS

    def _delete_released(self, current: CurrentSession) -> None:
        for bundle in self._due(BundleStage.DELETING):
            node = self._nodes.read((bundle.path,), self._on_watch)[bundle.path].node
            mine = node is not None and node.exists and node.session == current.session
            try:
                if mine and node is not None and node.version is not None:
                    self._nodes.delete(bundle.path, node.version, current.session)
            except LostRaceError:
                continue  # its value has changed: read it again
            except KazooException as error:
                bundle.callback.fail(self._clock())
                _log.warning("a released node cannot be deleted yet", path=bundle.path, error=repr(error))
                continue
            if node is not None:
                self._bundles.remove(bundle)
            else:
                bundle.callback.fail(self._clock())

    def _due(self, stage: BundleStage) -> list[Bundle]:
        now = self._clock()
        return [bundle for bundle in self._bundles.select((stage,)) if bundle.callback.due <= now]


def _retry_in_ms(ruling: BundleRuling, unreadable_times: int) -> int:
    if unreadable_times:
        return retry_ms(unreadable_times)
    if ruling.retry_ms is not None:
        return ruling.retry_ms
    return FIRST_RETRY_MS if ruling.left_ms is None else ruling.left_ms
