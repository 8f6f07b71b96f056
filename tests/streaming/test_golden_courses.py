"""Recorded courses publish what stands beside them, byte for byte: by the operator and by the replay engine.

After a change that is meant, `python -m tests.streaming.courses` writes it anew. To see whether a redesign decides the
same under other ids: `pytest tests/streaming/test_golden_courses.py --golden content`.
"""

import pytest

from policies.registry import POLICIES
from tests.cases import case
from tests.golden import Published, read_courses, read_published
from tests.streaming.courses import publish, replay, without_identities


@pytest.mark.parametrize("policy", POLICIES)
def test_a_recorded_course_publishes_what_was_recorded(policy: str, pytestconfig: pytest.Config) -> None:
    compared = without_identities if pytestconfig.getoption("--golden") == "content" else list
    recorded = read_published(policy)
    for course in read_courses(policy):
        with case(course.name):
            assert compared([*publish(course), *replay(course)]) == compared(recorded[course.name])


FIRST = Published(3, "headgate.decided.x", {"id": "a", "data": {"sequence": 1, "evidence": ["o1"], "factor": 0.5}})


@pytest.mark.parametrize(
    ("event", "is_same"),
    [
        ({"id": "b", "data": {"sequence": 2, "evidence": ["o2"], "factor": 0.5}}, True),
        ({"id": "a", "data": {"sequence": 1, "evidence": ["o1"], "factor": 0.4}}, False),
        ({"id": "a", "data": {"sequence": 1, "evidence": ["o1"]}}, False),
    ],
    ids=["other identities", "another factor", "no factor"],
)
def test_the_comparison_by_content_leaves_out_identities_alone(event: dict[str, object], is_same: bool) -> None:
    assert (without_identities([FIRST]) == without_identities([FIRST._replace(event=event)])) is is_same


def test_it_leaves_out_the_order_within_a_batch_and_timers_but_no_record() -> None:
    other, timer = FIRST._replace(event={"data": {"factor": 1.0}}), FIRST._replace(topic="headgate.timers")
    assert without_identities([FIRST, timer, other]) == without_identities([other, FIRST])
    assert without_identities([FIRST, FIRST]) != without_identities([FIRST])
    assert without_identities([FIRST._replace(batch=4)]) != without_identities([FIRST])
