"""The test servers themselves: a real Pulsar writes onto real bookies, and we can tell onto which."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.pulsar import PulsarCluster
from tests.system.pulsar_topics import create_namespace, ledgers, produce
from tests.system.waiting import eventually

pytestmark = pytest.mark.long
"""Of the tests' own servers; those of the product show it, too, each time one of these does not do as it should."""


@pytest.fixture(scope="module")
def cluster(
    pulsar_jars: tuple[Path, ...], bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PulsarCluster]:
    with PulsarCluster(tmp_path_factory.mktemp("pulsar"), pulsar_jars, bookkeeper_jars, bookies=2) as cluster:
        cluster.add_broker(ensemble_size=2)
        yield cluster


def test_each_ledger_is_found_on_the_bookies_it_was_written_to(cluster: PulsarCluster) -> None:
    first, second = cluster.bookies
    create_namespace(cluster, "t/ns")
    for _ in range(3):  # what is sent at once may all go into one ledger
        produce(cluster, "t/ns/topic", 5)
    before = ledgers(cluster, "t/ns/topic")
    assert len(before) >= 2, "a ledger of five entries is full, and the next one made when it is needed"
    assert set(before.values()) == {frozenset({first.bookie_id, second.bookie_id})}

    third = cluster.add_bookie()
    first.kill()
    # The broker sees a dead bookie when its session has expired, or at the next write.
    produce(cluster, "t/ns/topic", 10)
    later = {bookies for ledger, bookies in ledgers(cluster, "t/ns/topic").items() if ledger not in before}
    assert frozenset({second.bookie_id, third.bookie_id}) in later

    broker = cluster.brokers[0]
    broker.kill()
    broker.start()
    produce(cluster, "t/ns/topic", 1)


def test_bookies_die_freeze_and_come_back(cluster: PulsarCluster) -> None:
    bookie = cluster.bookies[1]
    registered = bookie.registration()
    bookie.stop()
    assert bookie.registration() is None
    bookie.start()
    assert (bookie.registration() or 0) > (registered or 0)
    with bookie.frozen():
        eventually("its session has expired", lambda: bookie.registration() is None)
    eventually("it has registered again", bookie.registration)
    assert 30 < bookie.resident_mebibytes < 200
    assert 100 < cluster.brokers[0].resident_mebibytes < 400
