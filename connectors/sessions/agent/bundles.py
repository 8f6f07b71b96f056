"""The bundles that a member owns, owned, or is about to own: the progress of each, and whether it may be served.

Used by the agent's own thread, the application's threads, and kazoo's.
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
"""A callback that fails so often for one bundle is not called again."""


class BundleStage(StrEnum):
    """How a bundle stands."""

    WANTED = "wanted"
    """It is to be owned; it was served before, if it is loaded."""
    OWNED = "owned"
    """Its node was read, and belongs to the session named."""
    UNLOADING = "unloading"
    """It is given up: not served any more, and closed next."""
    DELETING = "deleting"
    """Released and closed: its node is deleted next."""


LIVE = (BundleStage.WANTED, BundleStage.OWNED)


@dataclass(slots=True)
class Retry:
    """How often something failed, and when it is due again (seconds of the agent's clock)."""

    due: float = 0.0
    failures: int = 0

    def failed(self, now: float) -> None:
        """Once more: later each time, 100 ms doubling to 60 s."""
        self.failures += 1
        self.due = now + retry_ms(self.failures) / 1000


@dataclass(slots=True)
class Bundle:
    """What the agent knows of one bundle. Changed by the agent's thread and the watches, under the agent's lock."""

    path: str
    value: bytes
    claimed_at: float
    """When the application asked for it (seconds of the agent's clock)."""
    stage: BundleStage = BundleStage.WANTED
    session: str | None = None
    """The session its node belongs to, while it is owned."""
    loaded: bool = False
    """Whether it has been owned."""
    opened: bool = False
    """Whether the application may have something of it open: it was to get ready, or owned."""
    preloaded_for: str | None = None
    """The session for which it was preloaded last."""
    suspected: bool = False
    """Somebody created its node while it was wanted, and nobody has looked yet who."""
    writing: bool = False
    """Its node was or is being created here, and not looked at since."""
    ruling: BundleRuling | None = None
    """What is to be done next to own it, when that is known."""
    reason: OwnershipReason | None = None
    """Why it is given up; None: released by the application, or it could not get ready."""
    owner: str | None = None
    """Who owned its node when it was given up."""
    changes: int = 0
    """How often its watch told of a change: a reading during which it did says nothing."""
    look: Retry = field(default_factory=Retry)
    """When its node is read next."""
    unreadable_times: int = 0
    callback: Retry = field(default_factory=Retry)
    """When what the application is to do about it is due."""

    @property
    def due(self) -> float:
        """When something is to be done about it next."""
        if self.stage in (BundleStage.UNLOADING, BundleStage.DELETING):
            return self.callback.due
        return self.callback.due if self.ruling is not None else self.look.due

    def own(self, session: str) -> None:
        """Its node was read, and is of this session."""
        self.stage, self.session, self.loaded, self.opened = BundleStage.OWNED, session, True, True
        self.look, self.callback = Retry(math.inf), Retry()
        self._looked_at()

    def want(self, ruling: BundleRuling) -> None:
        """Its node was read, and is to be created."""
        self.lose()
        self._looked_at()
        self.ruling = ruling

    def wait(self, until: float) -> None:
        """Its node was read, and is neither its own nor another's; it is read again then."""
        self.lose()
        self._looked_at()
        self.look.due = until

    def lose(self) -> None:
        """It is not known to be owned in the present session any more: look."""
        self.stage, self.session, self.ruling, self.look.due = BundleStage.WANTED, None, None, 0.0

    def give_up(self, reason: OwnershipReason | None, owner: str | None = None) -> None:
        """It is served no more from here on."""
        self.stage, self.session, self.ruling = BundleStage.UNLOADING, None, None
        self.reason, self.owner, self.callback = reason, owner, Retry()

    def _looked_at(self) -> None:
        self.suspected = self.writing = False
        self.ruling = None


class Bundles:
    """Bundles by path. Whoever reads or changes one that is in here holds `lock`, for a moment only."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._by_path: dict[str, Bundle] = {}

    def get(self, path: str) -> Bundle | None:
        """The bundle of that path."""
        return self._by_path.get(path)

    def add(self, bundle: Bundle) -> None:
        """One more."""
        with self.lock:
            self._by_path[bundle.path] = bundle

    def remove(self, bundle: Bundle) -> None:
        """One less."""
        with self.lock:
            self._by_path.pop(bundle.path, None)

    def of(self, stages: Iterable[BundleStage]) -> list[Bundle]:
        """Those that stand so, in the order they were claimed."""
        wanted = tuple(stages)
        with self.lock:
            return [bundle for bundle in self._by_path.values() if bundle.stage in wanted]

    def next_due(self) -> float | None:
        """When something is to be done about any of them."""
        with self.lock:
            return min((bundle.due for bundle in self._by_path.values()), default=None)

    def new_session(self) -> None:
        """None is known to be owned in the present session."""
        with self.lock:
            for bundle in self._by_path.values():
                if bundle.stage in LIVE:
                    bundle.lose()

    def look_again(self, stages: Iterable[BundleStage] = LIVE) -> None:
        """The connection was away, or somebody has something new to say."""
        wanted = tuple(stages)
        with self.lock:
            for bundle in self._by_path.values():
                if bundle.stage in wanted:
                    bundle.look.due, bundle.ruling = 0.0, None

    def suspect(self, bundle: Bundle, session: str, *, taken: bool) -> None:
        """It was seen in a new session of ours; where another has taken it, it is not served from here on."""
        with self.lock:
            if bundle.stage is BundleStage.OWNED and bundle.session != session:
                bundle.lose()
            if taken and bundle.stage is BundleStage.WANTED:
                bundle.suspected = True

    def changed(self, path: str, event: str) -> bool:
        """Something happened to a node, as its watch tells; never blocks for long.

        Returns:
            Whether somebody has to look.
        """
        with self.lock:
            bundle = self._by_path.get(path)
            if bundle is None or bundle.stage not in LIVE:
                return False
            bundle.changes += 1
            bundle.look.due, bundle.ruling = 0.0, None
            if event == EventType.CREATED and bundle.stage is BundleStage.WANTED and not bundle.writing:
                bundle.suspected = True  # whose it is will be seen when it is read; until then it may be another's
            if event == EventType.DELETED and bundle.stage is BundleStage.OWNED:
                bundle.lose()
            return True
