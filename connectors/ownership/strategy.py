"""Who decides what is done after a session was lost: the policy's rules applied here, or the loop."""

from collections.abc import Callable
from typing import Protocol

from policies.sessions.decisions import SessionDecision
from policies.sessions.judge.ownership_table import BundleRuling, Claimant, NodeNow, rule
from policies.sessions.settings import OwnershipRules, RecoveryStep, SessionsSettings


class RecoveryStrategy(Protocol):
    """What the agent asks. It is asked from the agent's own thread only, and must not block."""

    def start(self, wake: Callable[[], None]) -> None:
        """Begin; call `wake`, from any thread, whenever an answer may have changed."""

    def close(self) -> None:
        """End."""

    def ruling(self, path: str, claimant: Claimant, node: NodeNow | None) -> BundleRuling:
        """What is to be done about one bundle, as its node is now; None: it could not be read."""

    def plan(self, session: str) -> tuple[RecoveryStep, ...]:
        """In which order a member with this new session comes back."""

    def shutdown(self, session: str | None) -> SessionDecision | None:
        """Why the process with this session should go down, if it should; the same decision at most once."""


class LocalStrategy:
    """The rules of the sessions policy, applied here: no loop is needed.

    It never orders a shutdown: whether a loss concerns one member or the whole fleet cannot be told from one member.

    Args:
        rules: what becomes of a bundle whose node belongs to the member's own old session.
        recovery_order: in which order a member comes back; None: the policy's default.
    """

    def __init__(
        self, rules: OwnershipRules = OwnershipRules.PIP57, recovery_order: tuple[RecoveryStep, ...] | None = None
    ) -> None:
        self._rules = rules
        self._order = SessionsSettings().recovery_order if recovery_order is None else recovery_order

    def start(self, wake: Callable[[], None]) -> None:
        """There is nothing new to wait for."""

    def close(self) -> None:
        """There is nothing to end."""

    def ruling(self, path: str, claimant: Claimant, node: NodeNow | None) -> BundleRuling:  # noqa: ARG002 - the protocol's
        """By the table of the rules."""
        return rule(claimant, node, self._rules)

    def plan(self, session: str) -> tuple[RecoveryStep, ...]:  # noqa: ARG002 - the protocol's
        """Always the same."""
        return self._order

    def shutdown(self, session: str | None) -> SessionDecision | None:  # noqa: ARG002 - the protocol's
        """Never."""
        return None
