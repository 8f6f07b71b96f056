"""Runs all checks in parallel, each with a time limit, and classifies them: works, slow, not permitted, failed."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from connectors.collection.probe import Probe, ProbeResult
from connectors.collection.read_errors import whole_line
from policies.closed_enum import ClosedEnum
from policies.observations import Outcome

LIMIT_SECONDS = 20.0
"""Each client has a shorter timeout; this limit is for calls that hang nevertheless, such as name resolution."""
SLOW_SECONDS = 1.0


class Verdict(ClosedEnum):
    """The verdict on a check, as shown first."""

    WORKS = "works", "It was read, or is permitted."
    SLOW = "slow", "It works, but took longer than a second."
    OPEN = "open", "It works, and others may do more there than they should; see the detail."
    NOT_ALLOWED = "not allowed", "The login, or a right, is refused."
    TOO_OLD = "too old", "This version does not support it."
    NO_ANSWER = "no answer", "No answer, or not in time."
    WRONG = "wrong", "Another problem; see the detail."


_VERDICTS = {
    Outcome.OK: Verdict.WORKS,
    Outcome.UNAUTHORIZED: Verdict.NOT_ALLOWED,
    Outcome.UNSUPPORTED: Verdict.TOO_OLD,
    Outcome.TIMEOUT: Verdict.NO_ANSWER,
    Outcome.UNREACHABLE: Verdict.NO_ANSWER,
    Outcome.ABSENT: Verdict.WRONG,
    Outcome.ERROR: Verdict.WRONG,
}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check."""

    system: str
    asked: str
    verdict: Verdict
    milliseconds: int
    detail: str
    remedies: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether there is nothing to fix."""
        return self.verdict in (Verdict.WORKS, Verdict.SLOW, Verdict.OPEN)


def result_of(system: str, asked: str, answer: ProbeResult, seconds: float) -> Result:
    """The verdict for an outcome."""
    verdict, seconds = _VERDICTS[answer.outcome], seconds if answer.seconds is None else answer.seconds
    if verdict is Verdict.WORKS and answer.is_open:
        verdict = Verdict.OPEN
    elif verdict is Verdict.WORKS and seconds > SLOW_SECONDS:
        verdict = Verdict.SLOW
    return Result(system, asked, verdict, round(seconds * 1000), answer.detail, answer.remedies)


def ask_all(probes: Sequence[Probe], limit_seconds: float = LIMIT_SECONDS) -> list[Result]:
    """Run all checks at the same time, within the limit; return the results in the order of the checks."""
    answers: SimpleQueue[tuple[int, Result]] = SimpleQueue()
    started = time.monotonic()
    for number, probe in enumerate(probes):
        threading.Thread(target=_ask, args=(number, probe, answers), name=probe.system, daemon=True).start()
    found: dict[int, Result] = {}
    while len(found) < len(probes):
        try:
            number, result = answers.get(timeout=max(0.0, started + limit_seconds - time.monotonic()))
        except Empty:
            break
        found[number] = result
    late = ProbeResult(Outcome.TIMEOUT, f"no answer within {limit_seconds:g} s")
    return [found.get(n) or result_of(each.system, each.asks, late, limit_seconds) for n, each in enumerate(probes)]


def _ask(number: int, probe: Probe, answers: "SimpleQueue[tuple[int, Result]]") -> None:
    started = time.monotonic()
    try:
        answer = probe.ask()
    except Exception as error:  # any exception is the result of the check
        answer = ProbeResult(Outcome.ERROR, whole_line(str(error) or type(error).__name__))
    answers.put((number, result_of(probe.system, probe.asks, answer, time.monotonic() - started)))
