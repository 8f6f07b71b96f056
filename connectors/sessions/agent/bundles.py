"""The bundles that a member owns or tries to own: the progress of each, and whether it may be served.

The agent's thread, the application's threads and kazoo's threads use them.
"""

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from kazoo.protocol.states import EventType

from policies.sessions.decisions import OwnershipReason
from policies.sessions.judge.ownership_table import BundleRuling, retry_ms

MOST_ATTEMPTS = 5
"""Number of attempts of a callback for one bundle."""


class BundleStage(StrEnum):
    """The stage of a bundle."""

    WANTED = "wanted"
    """The member tries to own it. If it is loaded, it was served before."""
    OWNED = "owned"
    """Its node was read and belongs to the session in `session`."""
    UNLOADING = "unloading"
    """It is given up: not served any more, and closed next."""
    DELETING = "deleting"
    """Released and closed: its node is deleted next."""


LIVE = (BundleStage.WANTED, BundleStage.OWNED)


@dataclass(slots=True)
class Retry:
    """Counts failures, with the time of the next attempt in seconds of the agent's clock."""

    due: float = 0.0
    failures: int = 0

    def fail(self, now: float) -> None:
        """Count a failure, with a back-off from 100 ms, doubled each time, up to 60 s."""
        self.failures += 1
        self.due = now + retry_ms(self.failures) / 1000


@dataclass(slots=True)
class Bundle:
    """The agent's state of one bundle. The agent's thread and the watches change it under the agent's lock."""

    path: str
    value: bytes
    claimed_at: float
    """Time of the application's request, in seconds of the agent's clock."""
    stage: BundleStage = BundleStage.WANTED
    session: str | None = None
    """The session its node belongs to, while it is owned."""
    loaded: bool = False
    """Whether it has been owned."""
    opened: bool = False
    """Whether the application may hold resources for it, because it was preloaded or owned."""
    preloaded_for: str | None = None
    """The session for which it was preloaded last."""
    suspected: bool = False
    """Its node was created while it was wanted, and has not been read since."""
    writing: bool = False
    """This agent creates or has created its node, and has not read it since."""
    ruling: BundleRuling | None = None
    """The next action to own it, if known."""
    reason: OwnershipReason | None = None
    """Why it is given up; None: the application released it, or `preload` failed."""
    owner: str | None = None
    """The owner of its node when it was given up."""
    changes: int = 0
    """Number of changes that its watch reported: a read is invalid if this number changes meanwhile."""
    look: Retry = field(default_factory=Retry)
    """The next read of its node."""
    unreadable_times: int = 0
    callback: Retry = field(default_factory=Retry)
    """The next call of a callback."""

    @property
    def due(self) -> float:
        """Time of its next action."""
        if self.stage in (BundleStage.UNLOADING, BundleStage.DELETING):
            return self.callback.due
        return self.callback.due if self.ruling is not None else self.look.due

    def mark_owned(self, session: str) -> None:
        """Note that its node was read and belongs to this session."""
        self.stage, self.session, self.loaded, self.opened = BundleStage.OWNED, session, True, True
        self.look, self.callback = Retry(math.inf), Retry()
        self._note_read()

    def want(self, ruling: BundleRuling) -> None:
        """Note that its node was read and must be created."""
        self.lose()
        self._note_read()
        self.ruling = ruling

    def wait(self, until: float) -> None:
        """Note that its node was read and must be read again at a time."""
        self.lose()
        self._note_read()
        self.look.due = until

    def lose(self) -> None:
        """Note that it may not be owned in the present session, so that its node is read."""
        self.stage, self.session, self.ruling, self.look.due = BundleStage.WANTED, None, None, 0.0

    def give_up(self, reason: OwnershipReason | None, owner: str | None = None) -> None:
        """Give it up; it is not served any more."""
        self.stage, self.session, self.ruling = BundleStage.UNLOADING, None, None
        self.reason, self.owner, self.callback = reason, owner, Retry()

    def _note_read(self) -> None:
        self.suspected = self.writing = False
        self.ruling = None


class Bundles:
    """Bundles by path. A thread that reads or changes one holds `lock`, for a moment only."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._by_path: dict[str, Bundle] = {}

    def get(self, path: str) -> Bundle | None:
        """Return the bundle of a path."""
        return self._by_path.get(path)

    def add(self, bundle: Bundle) -> None:
        """Add a bundle."""
        with self.lock:
            self._by_path[bundle.path] = bundle

    def remove(self, bundle: Bundle) -> None:
        """Remove a bundle."""
        with self.lock:
            self._by_path.pop(bundle.path, None)

    def select(self, stages: Iterable[BundleStage]) -> list[Bundle]:
        """Return the bundles in these stages, in the order of their claims."""
        wanted = tuple(stages)
        with self.lock:
            return [bundle for bundle in self._by_path.values() if bundle.stage in wanted]

    def next_due(self) -> float | None:
        """Return the time of the next action for any bundle."""
        with self.lock:
            return min((bundle.due for bundle in self._by_path.values()), default=None)

    def begin_session(self) -> None:
        """Note that no bundle is known to be owned in the new session."""
        with self.lock:
            for bundle in self._by_path.values():
                if bundle.stage in LIVE:
                    bundle.lose()

    def look_again(self, stages: Iterable[BundleStage] = LIVE) -> None:
        """Read the nodes of bundles in these stages again: the connection was lost, or there is a new decision."""
        wanted = tuple(stages)
        with self.lock:
            for bundle in self._by_path.values():
                if bundle.stage in wanted:
                    bundle.look.due, bundle.ruling = 0.0, None

    def suspect(self, bundle: Bundle, session: str, *, taken: bool) -> None:
        """Note that a bundle was read in a new session. If it is taken, it is not served any more."""
        with self.lock:
            if bundle.stage is BundleStage.OWNED and bundle.session != session:
                bundle.lose()
            if taken and bundle.stage is BundleStage.WANTED:
                bundle.suspected = True

    def handle_watch(self, path: str, event: str) -> bool:
        """Note an event of a node's watch; never blocks for long.

        Returns:
            Whether the node must be read.
        """
        with self.lock:
            bundle = self._by_path.get(path)
            if bundle is None or bundle.stage not in LIVE:
                return False
            bundle.changes += 1
            bundle.look.due, bundle.ruling = 0.0, None
            if event == EventType.CREATED and bundle.stage is BundleStage.WANTED and not bundle.writing:
                bundle.suspected = True  # it may be another member's until it is read
            if event == EventType.DELETED and bundle.stage is BundleStage.OWNED:
                bundle.lose()
            return True
