"""The callbacks that an application gives to the agent, and the failures that the agent reports to it."""

from policies.sessions.decisions import OwnershipReason, SessionDecision


class OwnershipCallbacks:
    """What the application does when ownership comes and goes. Override what matters to you; each does nothing here.

    The agent calls them one at a time, from its own thread, and each may take as long as it needs: heartbeats and
    `serving` go on meanwhile, other bundles wait. Each may be called again for what is done already, and must then do
    no harm: the agent starts over after a failure or another loss of the session. One that raises is tried again after
    a while, five times in all; then the bundle is given up (`preload`), or the agent goes on without (the others).
    """

    def preload(self, path: str) -> None:
        """Get ready to serve a bundle whose node is about to be created; do not serve it yet, `serving` tells when."""

    def unload(self, path: str, reason: OwnershipReason | None) -> None:
        """Close everything of a bundle; `serving` says no by then.

        Args:
            path: its node.
            reason: why it had to go; None when the application released it.
        """

    def republish(self) -> None:
        """Publish load data and registration again: those nodes may have gone with the old session."""

    def invalidate_caches(self) -> None:
        """Forget what was read from ZooKeeper before: changes may have been missed."""

    def shut_down(self, decision: SessionDecision) -> None:
        """This process is to end, or to be started anew: see the verdict.

        By the loop; without it only with `on_session_lost: shutdown`, after `reconnect_limit` failed attempts.
        """


class OwnershipError(Exception):
    """A bundle cannot be taken.

    Args:
        path: its node.
        why: the reason, as the end of a sentence.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class OwnedByOtherError(OwnershipError):
    """Its node is not ours to take.

    Args:
        path: the node.
        owner: the member its value names; None when that is not known.
        reason: why it is not ours.
    """

    def __init__(self, path: str, owner: str | None, reason: OwnershipReason) -> None:
        super().__init__(path, f"{reason.value}, its owner is {owner or 'not known'}")
        self.owner = owner
        self.reason = reason


class NoSessionError(OwnershipError):
    """There is no session at present, and nothing new is loaded without one."""
