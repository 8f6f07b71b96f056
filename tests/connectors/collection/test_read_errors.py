"""What a failed reading says, alike for all connectors."""

import itertools

from connectors.collection import DETAIL_LENGTH, ReadErrors, most_telling, one_line
from policies.observations import Outcome
from tests.cases import for_each

FAILURES = [outcome for outcome in Outcome if outcome is not Outcome.OK]


def test_a_detail_is_one_line_and_short() -> None:
    assert one_line("  no\n answer\tin   time ") == "no answer in time"
    assert len(one_line("x" * 999)) == DETAIL_LENGTH


@for_each("outcomes", list(itertools.combinations(FAILURES, 2)))
def test_which_failure_says_most_does_not_depend_on_their_order(outcomes: tuple[Outcome, ...]) -> None:
    assert most_telling(outcomes) is most_telling(outcomes[::-1])


def test_a_refused_login_says_more_than_any_silence() -> None:
    assert most_telling(FAILURES) is Outcome.UNAUTHORIZED
    assert most_telling([Outcome.UNREACHABLE, Outcome.TIMEOUT]) is Outcome.TIMEOUT
    assert most_telling([]) is Outcome.UNREACHABLE


def test_an_expected_error_becomes_the_fields_of_a_reading() -> None:
    errors = ReadErrors((OSError,), lambda error: Outcome.TIMEOUT, str)
    assert errors.failure(OSError("no answer")) == {"outcome": Outcome.TIMEOUT, "detail": "no answer"}
