"""Runs all checks in parallel, each with a time limit, and classifies them: works, slow, not permitted, failed."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from connectors.collection.probe import Probe, ProbeResult
from connectors.collection.read_errors import one_line
from policies.closed_enum import ClosedEnum
from policies.observations import Outcome

LIMIT_SECONDS = 20.0
"""Every client has a shorter one of its own: this is for what hangs all the same, such as a name server."""
SLOW_SECONDS = 1.0


class Verdict(ClosedEnum):
    """What a person is to know first of an answer."""

    WORKS = "works", "It was read, or may be done."
    SLOW = "slow", "It works, and took longer than a second."
    NOT_ALLOWED = "not allowed", "The login, or a right, is refused."
    TOO_OLD = "too old", "This version cannot tell."
    NO_ANSWER = "no answer", "Nobody answers there, or not in time."
    WRONG = "wrong", "Something else stands in the way; the detail says what."


_VERDICTS = {
    Outcome.OK: Verdict.WORKS,
    Outcome.UNAUTHORIZED: Verdict.NOT_ALLOWED,
    Outcome.UNSUPPORTED: Verdict.TOO_OLD,
    Outcome.TIMEOUT: Verdict.NO_ANSWER,
    Outcome.UNREACHABLE: Verdict.NO_ANSWER,
    Outcome.ERROR: Verdict.WRONG,
}


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to one question."""

    system: str
    asked: str
    verdict: Verdict
    milliseconds: int
    detail: str
    remedies: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether nothing needs to be mended."""
        return self.verdict in (Verdict.WORKS, Verdict.SLOW)


def result_of(system: str, asked: str, answer: ProbeResult, seconds: float) -> Result:
    """How an answer is shown."""
    verdict, seconds = _VERDICTS[answer.outcome], seconds if answer.seconds is None else answer.seconds
    if verdict is Verdict.WORKS and seconds > SLOW_SECONDS:
        verdict = Verdict.SLOW
    return Result(system, asked, verdict, round(seconds * 1000), answer.detail, answer.remedies)


def ask_all(probes: Sequence[Probe], limit_seconds: float = LIMIT_SECONDS) -> list[Result]:
    """Ask everything at once; the answers in the order of the questions, all of them within the limit."""
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
    except Exception as error:  # whatever it is, it is what came of the question
        answer = ProbeResult(Outcome.ERROR, one_line(str(error) or type(error).__name__))
    answers.put((number, result_of(probe.system, probe.asks, answer, time.monotonic() - started)))
