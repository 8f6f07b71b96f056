"""The outcome and short reason of a failed reading, with the same words for all connectors."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from connectors.redaction import without_secrets
from policies.observations import Outcome
from policies.printable import printable_line

Document = TypeVar("Document")

DETAIL_LENGTH = 200
"""Longer details are cut."""

_MOST_TELLING_FIRST = (
    Outcome.UNAUTHORIZED,
    Outcome.UNSUPPORTED,
    Outcome.ERROR,
    Outcome.TIMEOUT,
    Outcome.UNREACHABLE,
    Outcome.ABSENT,
)


@dataclass(frozen=True, slots=True)
class ReadErrors:
    """The exceptions that reading one kind of system may raise; any other is a fault of ours."""

    expected: tuple[type[Exception], ...]
    outcome_of: Callable[[BaseException], Outcome]
    detail_of: Callable[[BaseException], str]

    def failure(self, error: BaseException) -> dict[str, Any]:
        """Return the fields `outcome` and `detail` of the reading for an error."""
        return {"outcome": self.outcome_of(error), "detail": self.detail_of(error)}


def whole_line(text: str) -> str:
    """Return a text as one line, without secrets that a server has quoted."""
    return printable_line(" ".join(without_secrets(text).split()))


def one_line(text: str) -> str:
    """Make a reading's detail: `whole_line`, of at most `DETAIL_LENGTH`."""
    line = whole_line(text)
    return line if len(line) <= DETAIL_LENGTH else f"{line[: DETAIL_LENGTH - 1]}…"


def rank(outcome: Outcome) -> int:
    """Return a sort key for failures: the lower, the more it helps to find the fault."""
    return _MOST_TELLING_FIRST.index(outcome)


def most_telling(outcomes: Collection[Outcome]) -> Outcome:
    """Return the failure that helps most to find the fault; unreachable if there is none."""
    return min(outcomes, key=rank, default=Outcome.UNREACHABLE)


def parse_document(kind: TypeAdapter[Document], data: bytes) -> Document:
    """Parse JSON; raises ValueError with the first problem, and without the content."""
    try:
        return kind.validate_json(data)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def first_problem(error: ValidationError) -> str:
    """Return the place and the reason of the first problem in a document, without its content."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place}: {problem['msg']}" if place else problem["msg"]
