"""The callbacks of the application, and the exceptions that the agent raises."""

from policies.sessions.decisions import OwnershipReason, SessionDecision


class OwnershipCallbacks:
    """The application's reactions to changes of ownership. Override the methods you need; each does nothing here.

    The agent calls them one at a time, from its own thread. A callback may take as long as it needs: heartbeats and
    `serving` work in the meantime, but other bundles wait. Each must be idempotent, because the agent calls it again
    after a failure or another loss of the session. A callback that raises is retried with back-off, five times in all.
    After that the bundle is given up (`preload`), or the agent continues without it (the others).
    """

    def preload(self, path: str) -> None:
        """Prepare a bundle whose node is about to be created. Do not serve it before `serving` returns true."""

    def unload(self, path: str, reason: OwnershipReason | None) -> None:
        """Close a bundle; `serving` already returns false.

        Args:
            reason: why the member must give it up; None if the application released it.
        """

    def republish(self) -> None:
        """Publish load data and registration again: their nodes may be gone with the old session."""

    def invalidate_caches(self) -> None:
        """Drop data cached from ZooKeeper: changes may have been missed."""

    def shut_down(self, decision: SessionDecision) -> None:
        """End or restart this process, according to the verdict.

        The loop decides this. Without the loop it happens only with `on_session_lost: shutdown`, after
        `reconnect_limit` failed attempts.
        """


class OwnershipError(Exception):
    """A bundle cannot be owned.

    Args:
        why: the reason, as the end of a sentence.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class OwnedByOtherError(OwnershipError):
    """The bundle's node belongs to another member.

    Args:
        owner: the member that its value names; None if unknown.
    """

    def __init__(self, path: str, owner: str | None, reason: OwnershipReason) -> None:
        super().__init__(path, f"{reason.value}, its owner is {owner or 'not known'}")
        self.owner = owner
        self.reason = reason


class NoSessionError(OwnershipError):
    """There is no session at present, and without one no new bundle is loaded."""
