"""One bundle that a member owns, owned, or is about to: how far it is on its way, and whether it may be served."""

import math
from dataclasses import dataclass, field
from enum import StrEnum

from policies.sessions.bundles import Ruling, retry_ms
from policies.sessions.decision import OwnershipReason

MOST_ATTEMPTS = 5
"""A callback that fails so often for one bundle is not called again."""


class Stage(StrEnum):
    """How a bundle stands."""

    WANTED = "wanted"
    """It is to be owned; it was served before, if it is loaded."""
    OWNED = "owned"
    """Its node was read, and belongs to the session named."""
    UNLOADING = "unloading"
    """It is given up: not served any more, and closed next."""
    DELETING = "deleting"
    """Released and closed: its node is deleted next."""


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
class Holding:
    """What the agent knows of one bundle. Changed by the agent's thread and the watches, under the agent's lock."""

    path: str
    value: bytes
    claimed_at: float
    """When the application asked for it (seconds of the agent's clock)."""
    stage: Stage = Stage.WANTED
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
    ruling: Ruling | None = None
    """What is to be done next to own it, when that is known."""
    reason: OwnershipReason | None = None
    """Why it is given up; null: released by the application, or it could not get ready."""
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
        if self.stage in (Stage.UNLOADING, Stage.DELETING):
            return self.callback.due
        return self.callback.due if self.ruling is not None else self.look.due

    def own(self, session: str) -> None:
        """Its node was read, and is of this session."""
        self.stage, self.session, self.loaded, self.opened = Stage.OWNED, session, True, True
        self.look, self.callback = Retry(math.inf), Retry()
        self._looked_at()

    def want(self, ruling: Ruling) -> None:
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
        self.stage, self.session, self.ruling, self.look.due = Stage.WANTED, None, None, 0.0

    def give_up(self, reason: OwnershipReason | None, owner: str | None = None) -> None:
        """It is served no more from here on."""
        self.stage, self.session, self.ruling = Stage.UNLOADING, None, None
        self.reason, self.owner, self.callback = reason, owner, Retry()

    def _looked_at(self) -> None:
        self.suspected = self.writing = False
        self.ruling = None
