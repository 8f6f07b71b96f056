"""What holds of the bookie-disks policy whatever happens, by random histories."""

from random import Random

import pytest

from policies.observations import Observation, Outcome
from tests.examples import seeds
from tests.policies.bookie_disks.scenario import NO_PATIENCE, Run, disks, failed, settings
from tests.policies.cases_of_bookies import affinity, racks, registered

HISTORIES = pytest.mark.parametrize("seed", seeds(1))
GROUPS = {"g1": "b0 b1 b2", "g2": "b3 b4"}
NAMESPACES = {"a/one": "g1", "a/two": "g2", "a/three": ""}
STEADY = {"heartbeat": "1h"}
BOOKIES = [f"b{n}" for n in range(5)]
Poll = list[Observation]


def history(seed: int) -> list[Poll]:
    """Some polls of five bookies with two dirs each, with failures, read-only times and departures."""
    random, polls = Random(seed), []
    for number in range(8):
        second = 20 * number
        poll: Poll = [racks(second, GROUPS), affinity(second, NAMESPACES)] if number in (0, 4) else []
        there = [b for b in BOOKIES if random.random() < 0.95]
        poll.append(registered(second, " ".join(there)))
        for bookie in there:
            if random.random() < 0.1:
                poll.append(failed(second, bookie, Outcome.TIMEOUT))
            else:
                dirs: dict[str, int | None] = {f"/{d}": random.choice([2, 11, 13, 15, 18, 25, 60]) for d in "xy"}
                poll.append(disks(second, bookie, dirs, read_only=random.random() < 0.05))
        polls.append(poll)
    return polls


@HISTORIES
def test_the_cut_into_batches_does_not_change_what_is_in_force_in_the_end(seed: int) -> None:
    polls = history(seed)
    whole, pieces = Run(settings(STEADY, NO_PATIENCE)), Run(settings(STEADY, NO_PATIENCE))
    for poll in polls:
        whole.together(*poll)
        pieces.feed(poll)
    whole.until(600)
    pieces.until(600)
    for group in ("default", "g1", "g2"):
        assert pieces.verdict(group)[0] == whole.verdict(group)[0]


@HISTORIES
def test_one_more_bookie_with_room_never_lowers_a_factor(seed: int) -> None:
    plain, more = Run(settings(STEADY, NO_PATIENCE)), Run(settings(STEADY, NO_PATIENCE))
    for number, poll in enumerate(history(seed)):
        plain.together(*poll)
        second = 20 * number
        more.together(*(with_one_more(o) for o in poll), disks(second, "b9", 90))
        for group in ("default", "g1", "g2"):
            assert more.last(group).factor >= plain.last(group).factor


def with_one_more(observation: Observation) -> Observation:
    """The same reading, in which b9 is registered and in both groups."""
    text = observation.reading.model_dump_json()
    text = text.replace('"b0":{', '"b9":{"rack":null},"b0":{').replace('"b3":{', '"b9":{"rack":null},"b3":{')
    text = text.replace('"writable":[', '"writable":[{"bookie":"b9"},')
    return Observation(observation.id, observation.at, type(observation.reading).model_validate_json(text))
