"""The outcome and short reason of a failed reading, worded alike for all connectors."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from connectors.redaction import without_secrets
from policies.observations import Outcome
from policies.printable import printable_line

DETAIL_LENGTH = 200
"""Longer details are cut."""

# Of several failures, what says most about what to mend comes first.
_MOST_TELLING_FIRST = (
    Outcome.UNAUTHORIZED,
    Outcome.UNSUPPORTED,
    Outcome.ERROR,
    Outcome.TIMEOUT,
    Outcome.UNREACHABLE,
)


@dataclass(frozen=True, slots=True)
class ReadErrors:
    """The errors that reading one kind of system may raise, and what they mean; any other is a fault of ours."""

    expected: tuple[type[Exception], ...]
    outcome_of: Callable[[BaseException], Outcome]
    detail_of: Callable[[BaseException], str]

    def failure(self, error: BaseException) -> dict[str, Any]:
        """The fields `outcome` and `detail` of the reading that stands for an error."""
        return {"outcome": self.outcome_of(error), "detail": self.detail_of(error)}


def one_line(text: str) -> str:
    """A detail as readings have it: one line, cut at `DETAIL_LENGTH`, without a secret that a server has quoted."""
    return printable_line(" ".join(without_secrets(text).split()))[:DETAIL_LENGTH]


def rank(outcome: Outcome) -> int:
    """Sorts failures: the lower, the more it says about what to mend."""
    return _MOST_TELLING_FIRST.index(outcome)


def most_telling(outcomes: Collection[Outcome]) -> Outcome:
    """Of several failures' outcomes the one that says most about what to mend; unreachable when there are none."""
    return min(outcomes, key=rank, default=Outcome.UNREACHABLE)


def first_problem(error: ValidationError) -> str:
    """The first thing that is wrong with a document: where, and what; none of its content."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place}: {problem['msg']}" if place else problem["msg"]
