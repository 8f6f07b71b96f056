"""Does what is due about the bundles of a member that has a session: looks, and owns again, waits, or lets go.

A pass starts from nothing but the nodes as they are now, so it may end anywhere, by a failure or another loss of the
session, and the next one goes on. A bundle counts as owned only when its node was read and belongs to the present
session.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog
from kazoo.exceptions import KazooException
from kazoo.protocol.states import WatchedEvent

from connectors.ownership.callbacks import OwnershipCallbacks
from connectors.ownership.guide import Guide
from connectors.ownership.holding import MOST_ATTEMPTS, Holding, Retry, Stage
from connectors.ownership.holdings import LIVE, Holdings
from connectors.ownership.nodes import Answer, LostRaceError, Nodes
from connectors.ownership.reports import Reports
from policies.sessions.bundles import FIRST_RETRY_MS, Claimant, NodeNow, Ruling, retry_ms
from policies.sessions.decision import OwnershipReason, OwnershipVerdict
from policies.sessions.readings import RecoveryAction

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Present:
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


class Caretaker:
    """Looks after the bundles of one member, from the agent's thread only.

    Args:
        member: as the nodes' values name it.
        holdings: the bundles.
        nodes: how they are read and written.
        guide: who says what to do.
        callbacks: the application's.
        reports: where it is told.
        clock: seconds.
        on_watch: called by kazoo's thread when a node changes.
    """

    def __init__(
        self,
        member: str,
        holdings: Holdings,
        nodes: Nodes,
        guide: Guide,
        callbacks: OwnershipCallbacks,
        reports: Reports,
        clock: Callable[[], float],
        on_watch: Callable[[WatchedEvent], None],
    ) -> None:
        self._member = member
        self._holdings = holdings
        self._nodes = nodes
        self._guide = guide
        self._callbacks = callbacks
        self._reports = reports
        self._clock = clock
        self._on_watch = on_watch

    def care(self, present: Present) -> None:
        """One pass: what others own is let go first, because they may serve it already.

        Raises:
            NoAnswerError: the connection or the session went; nothing is lost by that.
        """
        self._examine(present)
        self.close_given_up()
        self._delete_released(present)
        self._own_again(present)
        self._examine(present)
        self.close_given_up()

    def close_given_up(self) -> None:
        """Have what is given up closed by the application, and forget it; needs no connection."""
        for holding in self._due(Stage.UNLOADING):
            if holding.opened and not self._closed(holding):
                continue
            if holding.reason is None:  # nobody else's: there may be a node of ours
                with self._holdings.lock:
                    holding.stage, holding.callback = Stage.DELETING, Retry()
            else:
                self._holdings.remove(holding)

    def call(self, retry: Retry, action: RecoveryAction | None, path: str | None, work: Callable[[], None]) -> bool:
        """Have the application do something; a failure is told, and tried again later."""
        try:
            work()
        except Exception as error:
            retry.failed(self._clock())
            _log.warning("a callback failed", member=self._member, path=path, attempt=retry.failures, error=repr(error))
            if action is not None:
                self._reports.failed(action, type(error).__name__, path, attempt=retry.failures)
            return False
        return True

    def _examine(self, present: Present) -> None:
        now = self._clock()
        self._look_at(
            [holding for holding in self._holdings.of(LIVE) if holding.ruling is None and holding.look.due <= now],
            present,
        )

    def _look_at(self, due: list[Holding], present: Present) -> None:
        changes = [holding.changes for holding in due]
        answers = self._nodes.read([holding.path for holding in due], self._on_watch) if due else {}
        for holding, before in zip(due, changes, strict=True):
            self._judge(holding, answers[holding.path], before, present)

    def _judge(self, holding: Holding, answer: Answer, changes: int, present: Present) -> None:
        node = self._told(holding, answer)
        now = self._clock()
        waited_ms = round((now - max(present.since, holding.claimed_at)) * 1000)
        is_new = holding.claimed_at >= present.since
        claimant = Claimant(self._member, present.session, max(0, waited_ms), present.wait_ms, is_new)
        ruling = self._guide.ruling(holding.path, claimant, node)
        with self._holdings.lock:
            if holding.changes != changes:
                return  # since it was read; it is due again
            if ruling.verdict is OwnershipVerdict.KEEP:
                holding.own(present.session)
            elif ruling.verdict is OwnershipVerdict.UNLOAD:
                holding.give_up(ruling.reason, None if node is None else node.owner)
            elif ruling.verdict is OwnershipVerdict.RE_OWN:
                holding.want(ruling)
            else:
                holding.wait(now + _wait_ms(ruling, holding.unreadable_times) / 1000)

    def suspect_taken(self, session: str) -> None:
        """Look, in a new session, for bundles that another has taken, so that they are not served any longer.

        The next pass does the same and more, but may have to wait for a callback. This may run in any thread.

        Raises:
            NoAnswerError: as `care` does.
        """
        loaded = [holding for holding in self._holdings.of(LIVE) if holding.loaded]
        answers = self._nodes.read([holding.path for holding in loaded], self._on_watch) if loaded else {}
        for holding in loaded:
            node = answers[holding.path].node
            taken = node is not None and node.exists and node.owner != self._member
            self._holdings.suspect(holding, session, taken=taken)

    def _told(self, holding: Holding, answer: Answer) -> NodeNow | None:
        """The node as rules want it: with how often in a row it could not be read."""
        node = answer.node
        readable = node is not None and (not node.exists or not node.ephemeral or node.owner is not None)
        holding.unreadable_times = 0 if readable else holding.unreadable_times + 1
        if node is None:
            _log.warning("a node is not read", path=holding.path, obstacle=answer.obstacle)
            return None
        if readable:
            return node
        return NodeNow(
            node.exists, node.ephemeral, None, node.session, node.version, unreadable_times=holding.unreadable_times
        )

    def _own_again(self, present: Present) -> None:
        for holding in self._due(Stage.WANTED):
            if holding.ruling is not None:
                self._re_own(holding, present)

    def _re_own(self, holding: Holding, present: Present) -> None:
        if holding.preloaded_for != present.session:
            if not self._preloaded(holding, present):
                return
            # That may have taken long. Versions start anew with each node, so the node is read right before the write:
            # the longer in between, the likelier another's new node has the version of our old one.
            self._look_at([holding], present)
        with self._holdings.lock:
            ruling = holding.ruling
            if ruling is None:
                return
            holding.lose()  # whatever comes of it is read, and not concluded
            holding.writing = True
        self._write(holding, ruling, present)

    def _write(self, holding: Holding, ruling: Ruling, present: Present) -> None:
        try:
            if ruling.delete_first and ruling.expected_version is not None:
                self._nodes.replace(holding.path, holding.value, ruling.expected_version, present.session)
            else:
                self._nodes.create(holding.path, holding.value, present.session)
        except LostRaceError:
            with self._holdings.lock:
                holding.give_up(OwnershipReason.OTHER_OWNER)
        except KazooException as error:
            holding.look.failed(self._clock())
            detail = type(error).__name__
            self._reports.failed(RecoveryAction.RE_OWN, detail, holding.path, attempt=holding.look.failures)
        else:
            holding.look.failures = 0
            self._reports.ok(RecoveryAction.RE_OWN, holding.path, attempt=holding.callback.failures + 1)

    def _preloaded(self, holding: Holding, present: Present) -> bool:
        path, holding.opened = holding.path, True
        if self.call(holding.callback, RecoveryAction.RE_OWN, path, lambda: self._callbacks.preload(path)):
            holding.preloaded_for = present.session
            return True
        if holding.callback.failures >= MOST_ATTEMPTS:
            with self._holdings.lock:
                holding.give_up(None)
        return False

    def _closed(self, holding: Holding) -> bool:
        path, reason = holding.path, holding.reason
        done = self.call(holding.callback, RecoveryAction.UNLOAD, path, lambda: self._callbacks.unload(path, reason))
        if done:
            self._reports.ok(RecoveryAction.UNLOAD, path, attempt=holding.callback.failures + 1)
        elif holding.callback.failures >= MOST_ATTEMPTS:
            _log.error("a bundle could not be closed and is left as it is", member=self._member, path=path)
        return done or holding.callback.failures >= MOST_ATTEMPTS

    def _delete_released(self, present: Present) -> None:
        for holding in self._due(Stage.DELETING):
            node = self._nodes.read((holding.path,), self._on_watch)[holding.path].node
            mine = node is not None and node.exists and node.session == present.session
            try:
                if mine and node is not None and node.version is not None:
                    self._nodes.delete(holding.path, node.version, present.session)
            except LostRaceError:
                continue  # its value has changed: look again
            except KazooException as error:
                holding.callback.failed(self._clock())
                _log.warning("a released node is not deleted", path=holding.path, error=repr(error))
                continue
            if node is not None:
                self._holdings.remove(holding)
            else:
                holding.callback.failed(self._clock())

    def _due(self, stage: Stage) -> list[Holding]:
        now = self._clock()
        return [holding for holding in self._holdings.of((stage,)) if holding.callback.due <= now]


def _wait_ms(ruling: Ruling, unreadable_times: int) -> int:
    if unreadable_times:
        return retry_ms(unreadable_times)
    if ruling.retry_ms is not None:
        return ruling.retry_ms
    return FIRST_RETRY_MS if ruling.left_ms is None else ruling.left_ms
