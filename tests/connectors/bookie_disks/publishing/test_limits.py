"""The three kinds of limits, on names that must be quoted."""

import re

from connectors.bookie_disks.publishing.limits import NamespaceLimits, ResourceGroupLimits, name_resource_group
from policies.bookie_disks.publish_plan import FoundLimit, PublishRecord
from tests.connectors.bookie_disks.publishing.test_worker import Pulsar


def test_a_record_is_read_as_it_was_written() -> None:
    limits = NamespaceLimits(Pulsar("acme/a b").admin())
    record = PublishRecord(FoundLimit(5, '{"x": 1}'), (4, 3))
    limits.write_record("acme/a b", record)
    assert limits.records().known == {"acme/a b": record}
    limits.delete_record("acme/a b")
    assert limits.records().known == {}


def test_a_resource_group_goes_with_its_last_namespace() -> None:
    pulsar = Pulsar("acme/a", "acme/b")
    limits = ResourceGroupLimits(pulsar.admin())
    for name in ("acme/a", "acme/b"):
        limits.set(name, "g1", 100)
    assert pulsar.groups == {"headgate-g1": 100}
    limits.restore("acme/a", FoundLimit(None, None))
    assert pulsar.groups == {"headgate-g1": 100}
    limits.restore("acme/b", FoundLimit(None, None))
    assert pulsar.groups == {}


def test_two_placement_groups_never_share_a_resource_group() -> None:
    names = [name_resource_group(group) for group in ("a-b", "a,b", "a/b", "*", "-", "default")]
    assert len(set(names)) == len(names)
    assert names[-1] == "headgate-default"
    assert all(re.fullmatch(r"[\w.-]+", name) for name in names)


def test_a_namespace_that_is_gone_has_no_limit() -> None:
    limits = NamespaceLimits(Pulsar().admin())
    assert limits.find("acme/gone") == FoundLimit(None, None)
