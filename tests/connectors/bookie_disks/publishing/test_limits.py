"""The limits of namespaces, on names that must be quoted."""

from connectors.bookie_disks.limits import NamespaceLimits
from policies.bookie_disks.readings import FoundLimit, PublishRecord
from tests.connectors.bookie_disks.publishing.test_worker import Pulsar


def test_a_record_is_read_as_it_was_written() -> None:
    limits = NamespaceLimits(Pulsar("acme/a b").admin())
    record = PublishRecord(FoundLimit(5, '{"x": 1}'), (4, 3))
    limits.write_record("acme/a b", record)
    assert limits.records().known == {"acme/a b": record}
    limits.delete_record("acme/a b")
    assert limits.records().known == {}


def test_a_namespace_that_is_gone_has_no_limit() -> None:
    limits = NamespaceLimits(Pulsar().admin())
    assert limits.find("acme/gone") == FoundLimit(None, None)
