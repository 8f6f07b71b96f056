"""Which topic a cursor's znode is about, and which bundle that topic belongs to."""

import zlib

import pytest

from connectors.switching.clusters import find_bundle, parse_topic
from tests.cases import for_each

SIXTEEN = [f"0x{i << 28:08x}_0x{min((i + 1) << 28, 0xFFFFFFFF):08x}" for i in range(16)]

# Znode, topic's name and bundle as a Pulsar 4.2 broker answered for a namespace of 16 bundles.
CAPTURED = [
    ("topic/s+1%2Fx+%C3%A9", "topic", "0xb0000000_0xc0000000"),
    ("z%C3%BCrich/s1", "zürich", "0x90000000_0xa0000000"),
    ("a+b/s1", "a b", "0xb0000000_0xc0000000"),
    ("a%252Fb/s1", "a%2Fb", "0xf0000000_0xffffffff"),
    ("x%2By%25/s1", "x+y%", "0x90000000_0xa0000000"),
    ("persistent/s1", "persistent", "0x10000000_0x20000000"),
    ("%E6%97%A5%E6%9C%AC/s1", "日本", "0x20000000_0x30000000"),
    ("t1/s1", "t1", "0xf0000000_0xffffffff"),
    ("t2/s1", "t2", "0x60000000_0x70000000"),
    ("t3/s1", "t3", "0x10000000_0x20000000"),
    ("t4/s1", "t4", "0x80000000_0x90000000"),
]


@for_each(("znode", "topic", "bundle"), CAPTURED, ids=[c[1] for c in CAPTURED])
def test_a_topic_belongs_to_the_bundle_that_a_real_broker_says(znode: str, topic: str, bundle: str) -> None:
    namespace, name = parse_topic(f"/managed-ledgers/t/n/persistent/{znode}")
    assert (namespace, name) == ("t/n", f"persistent://t/n/{topic}")
    assert find_bundle(name, SIXTEEN) == bundle


def test_pulsars_first_topic_names_have_a_cluster() -> None:
    found = parse_topic("/managed-ledgers/t/c/n/persistent/topic/s1")
    assert found == ("t/c/n", "persistent://t/c/n/topic")


@pytest.mark.parametrize(
    "path",
    ["/managed-ledgers/t/n/persistent/topic", "/managed-ledgers/t/n/other/topic/s1", "/schemas/t/n/persistent/x/s", ""],
)
def test_what_is_no_cursor_is_named(path: str) -> None:
    with pytest.raises(ValueError, match="is not the znode of a cursor"):
        parse_topic(path)


@pytest.mark.parametrize(
    ("bundle", "is_its"),
    [
        ("0xb2b694d2_0xffffffff", True),  # its own hash is the lower end
        ("0x00000000_0xb2b694d2", False),  # or the upper one
        ("0x00000000_0xb2b694d3", True),
        ("0xb2b694d3_0xffffffff", False),
        ("lock", False),
    ],
)
def test_a_range_holds_its_lower_end_and_not_its_upper_one(bundle: str, is_its: bool) -> None:
    assert (find_bundle("persistent://t/n/topic", [bundle]) is not None) == is_its


def test_of_a_bundle_and_its_halves_the_half_counts() -> None:
    halves = ["0x00000000_0x80000000", "0x80000000_0xffffffff"]
    assert find_bundle("persistent://t/n/topic", ["0x00000000_0xffffffff", *halves]) == "0x80000000_0xffffffff"


def test_the_greatest_hash_belongs_to_the_last_bundle() -> None:
    topic = "persistent://t/n/acccccacacacaaaaaacaccccaaaaaacaaa"
    assert zlib.crc32(topic.encode()) == 0xFFFFFFFF
    assert find_bundle(topic, SIXTEEN) == "0xf0000000_0xffffffff"
