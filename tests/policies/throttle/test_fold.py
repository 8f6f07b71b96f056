"""What is known of a cluster, however the readings arrive."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from policies.observations import Observation, sort_observations
from policies.throttle.fold import fold
from tests.policies.scenario import GB, at, log_dirs
from tests.policies.throttle.known import A, batches, counting, folded


@given(batches, st.data())
def test_order_and_duplicates_within_a_batch_do_not_matter(batch: list[Observation], data: st.DataObject) -> None:
    repeated = batch + (data.draw(st.lists(st.sampled_from(batch), max_size=5)) if batch else [])
    shuffled = data.draw(st.permutations(repeated))
    assert msgspec.msgpack.encode(folded(shuffled)) == msgspec.msgpack.encode(folded(batch))


@given(batches, st.data())
def test_where_a_course_of_readings_is_cut_into_batches_does_not_matter(
    batch: list[Observation], data: st.DataObject
) -> None:
    ordered = sort_observations(batch)
    cut = data.draw(st.integers(0, len(ordered)))
    assert folded(ordered[:cut], ordered[cut:]) == folded(ordered)


@given(batches, batches)
def test_what_was_seen_before_changes_nothing_when_it_comes_again(
    first: list[Observation], second: list[Observation]
) -> None:
    later = [o for o in second if all(o.at >= f.at for f in first) and o.id not in {f.id for f in first}]
    known = folded(first, later)
    assert fold(known, first) == known


@given(batches)
def test_brokers_and_volumes_are_sorted(batch: list[Observation]) -> None:
    known = folded(batch)
    assert [b.broker for b in known.brokers] == sorted({b.broker for b in known.brokers})
    for broker in known.brokers:
        assert [v.log_dir for v in broker.volumes] == sorted({v.log_dir for v in broker.volumes})


def test_of_an_id_seen_twice_the_earliest_counts() -> None:
    twice = [log_dirs(5, 1, 50 * GB, id="x"), log_dirs(0, 1, 3 * GB, id="x")]
    assert [o.at for o in sort_observations(twice)] == [at(0)]
    assert counting(folded(twice), 10)[1, A].state.usable_bytes == 3 * GB
