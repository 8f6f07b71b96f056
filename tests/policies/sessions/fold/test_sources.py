"""What attempts to read a source make of what is remembered of it."""

from policies.sessions.fold.cluster import fold_source
from policies.sessions.state import SourceRecord
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


def test_it_is_remembered_since_when_it_has_been_read_without_a_gap() -> None:
    read = [tree(0), tree(300), tree(601)]
    source, since = SourceRecord("/namespace"), []
    for seen in read:
        source = fold_source(source, seen, good=True, validity_ms=300_000)
        since.append(source.since_ms)
    assert since == [to_millis(at(0)), to_millis(at(0)), to_millis(at(601))]
