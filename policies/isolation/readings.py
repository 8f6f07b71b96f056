"""Readings of the isolation policy alone: topic ``observed.bookies``, keyed by cluster."""

from typing import ClassVar

from pydantic import Field

from policies.bookie_readings import NamespaceName
from policies.isolation.settings import RuleSet
from policies.observations import Outcome, Reading


class NamespacePromise(Reading):
    """The rules that an operator promises to a namespace. The promise holds until the next one."""

    event_type: ClassVar[str] = "headgate.namespace-promise.v1"

    outcome: Outcome = Field(
        default=Outcome.OK, description="Always `ok`, because a command is not read from a system."
    )
    namespace: NamespaceName = Field(description="`tenant/namespace`.")
    promise: RuleSet | None = Field(description="The promised rules; null: the rules of the settings apply again.")
    actor: str = Field(default="", max_length=249, description="The operator who promises.")
    reason: str = Field(default="", max_length=2000, description="Why, in the actor's words.")

    def subject(self) -> str:
        """``<cluster>/<namespace>``."""
        return f"{self.cluster}/{self.namespace}"
