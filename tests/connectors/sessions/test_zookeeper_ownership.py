"""What nodes say of their owners, and how readings of many nodes travel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sessions.ownership import split_reading
from connectors.zookeeper.json_znodes import digest, owner_member
from policies.observations import Outcome
from policies.sessions.readings import NodeKind, OwnedNode
from policies.units import from_millis
from policies.wire import MAX_RECORD_BYTES, observation_event
from tests.cases import for_each

# As Pulsar 4.2 writes them.
BUNDLE = (
    b'{"nativeUrl":"pulsar://b1.example.org:6650","nativeUrlTls":null,"httpUrl":"http://b1.example.org:8080",'
    b'"httpUrlTls":null,"disabled":false,"advertisedListeners":{}}'
)


@for_each(
    ("value", "member"),
    [
        (BUNDLE, "b1.example.org:8080"),
        (b'{"brokerId":"b1:8080","serviceUrl":"http://other:1"}', "b1:8080"),
        (b'{"webServiceUrl":"http://b1:8080","pulsarServiceUrl":"pulsar://b1:6650"}', "b1:8080"),
        (b'{"serviceUrl":"http://b1:8080"}', "b1:8080"),
        (b'{"httpUrl":null,"httpUrlTls":"https://b1:8443"}', "b1:8443"),
        (b'{"nativeUrl":"pulsar://b1:6650"}', "b1:6650"),
        (b'{"httpUrl":"http://[::1]:8080"}', "[::1]:8080"),
        (b'{"httpUrl":"http://user:word@b1:8080/"}', "b1:8080"),
        (b'{"httpUrl":"http://b1"}', None),
        (b'{"httpUrl":"http://[::1:8080"}', None),
        (b'{"brokerId":""}', None),
        (b'{"brokerId":7}', None),
        (b'{"brokerId":"' + b"b" * 1001 + b'"}', None),
        (b"{}", None),
        (b"[]", None),
        (b"", None),
        (b"b1:8080", None),
        (b"\xff\xfe", None),
        (b"[" * 100_000, None),
    ],
)
def test_the_owner_is_whom_the_value_names(value: bytes, member: str | None) -> None:
    assert owner_member(value) == member


@given(st.binary(max_size=100))
def test_any_value_at_all_names_a_member_or_none(value: bytes) -> None:
    owner_member(value)
    assert digest(value) == digest(bytes(value))
    assert digest(value) != digest(value + b"x")


def nodes(count: int, namespace: str = "tenant/ns", owner: str = "b1.example.org:8080") -> list[OwnedNode]:
    return [
        OwnedNode(
            path=f"/namespace/{namespace}/0x{number:08x}_0x{number + 1:08x}",
            kind=NodeKind.BUNDLE,
            owner_member=owner,
            value_digest=digest(b""),
            session="0xffffffffffffffff",
            czxid=2**63 - 1,
            version=2**31 - 1,
        )
        for number in range(count)
    ]


def test_a_tree_travels_in_one_record_as_long_as_it_fits() -> None:
    whole = nodes(10_000)
    (reading,) = split_reading("payments", "/namespace", whole, ["/namespace/tenant"])
    assert (reading.tree, reading.nodes) == ("/namespace", tuple(whole))


def test_a_larger_one_travels_by_tenant_the_empty_ones_too() -> None:
    first, second = nodes(9000, "first/ns"), nodes(9000, "second/ns")
    branches = ["/namespace/empty", "/namespace/first", "/namespace/second"]
    readings = list(split_reading("payments", "/namespace", [*first, *second], branches))
    assert [(reading.tree, len(reading.nodes)) for reading in readings] == [
        ("/namespace/empty", 0),
        ("/namespace/first", 9000),
        ("/namespace/second", 9000),
    ]
    assert all(reading.outcome is Outcome.OK for reading in readings)


def test_a_tenant_that_is_too_large_is_told_and_leaves_the_others_readable() -> None:
    large, small = nodes(20_000, "large/ns"), nodes(1, "small/ns")
    branches = ["/namespace/large", "/namespace/small"]
    of_large, of_small = split_reading("payments", "/namespace", [*large, *small], branches)
    assert (of_large.outcome, of_large.nodes) == (Outcome.UNSUPPORTED, ())
    assert "20000 nodes" in (of_large.detail or "")
    assert len(of_small.nodes) == 1


@pytest.mark.parametrize("owner", ["b:1", "b" * 1000, "ü" * 500], ids=["short", "long", "not ASCII"])
def test_what_is_said_to_fit_fits(owner: str) -> None:
    count = 1
    while len(list(split_reading("p", "/namespace", nodes(2 * count, owner=owner), []))) == 1:
        count *= 2
    (reading,) = split_reading("p", "/namespace", nodes(count, owner=owner), [])
    record = observation_event(reading, id="i" * 100, source="s" * 100, time=from_millis(0))
    assert MAX_RECORD_BYTES / 4 < len(record) <= MAX_RECORD_BYTES
