"""What attempts to read a source make of what is remembered of it."""

import dataclasses

import pytest

from policies.sessions import SessionsSettings, SessionsState
from policies.sessions.fold import ClusterState, fold_source
from policies.sessions.state import NEVER, SourceRecord
from policies.units import to_millis
from tests.policies.sessions.course import at, tree


def test_a_failed_attempt_leaves_the_last_good_reading() -> None:
    good = fold_source(SourceRecord("/namespace"), tree(5), good=True, validity_ms=300_000)
    failed = fold_source(good, tree(9, outcome="timeout"), good=False, validity_ms=300_000)
    assert (failed.read_ms, failed.tried_ms, failed.outcome) == (to_millis(at(5)), to_millis(at(9)), "timeout")
    assert failed.read_id == good.read_id == good.tried_id


def test_an_older_attempt_and_the_same_again_are_no_news() -> None:
    source = fold_source(SourceRecord("/namespace"), tree(5), good=True, validity_ms=300_000)
    assert fold_source(source, tree(4), good=True, validity_ms=300_000) is source
    assert fold_source(source, tree(5), good=True, validity_ms=300_000) is source


def test_a_failure_that_two_collectors_saw_is_one() -> None:
    cluster = ClusterState(SessionsState(0), SessionsSettings())
    failures = [tree(second, outcome="timeout") for second in (5, 5, 12)]
    failures[1] = dataclasses.replace(failures[1], id="of another collector")
    for seen, relapsed_ms in zip([failures[0], tree(9), *failures[1:]], [NEVER] * 3 + [to_millis(at(12))], strict=True):
        cluster.fold([seen], to_millis(at(12)))
        assert cluster.sources["/namespace"].relapsed_ms == relapsed_ms


@pytest.mark.parametrize(("recovered_ms", "is_unread"), [(999, True), (1000, False), (1001, False)])
def test_a_source_that_was_read_in_the_instant_of_its_failure_has_recovered(recovered_ms: int, is_unread: bool) -> None:
    source = SourceRecord("/namespace", failed_ms=1000, recovered_ms=recovered_ms)
    assert source.was_unread(since_ms=1000, lost_ms=2000, validity_ms=300_000) is is_unread


def test_it_is_remembered_since_when_it_has_been_read_without_a_gap() -> None:
    read = [tree(0), tree(300), tree(601)]
    source, since = SourceRecord("/namespace"), []
    for seen in read:
        source = fold_source(source, seen, good=True, validity_ms=300_000)
        since.append(source.since_ms)
    assert since == [to_millis(at(0)), to_millis(at(0)), to_millis(at(601))]
