"""What the nodes of BookKeeper and Pulsar say."""

from typing import Any

import pytest

from connectors.zookeeper.bookies import parse_affinity, parse_groups, parse_persistence
from policies.bookie_readings import RackInfo
from tests.cases import for_each

GROUPS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "zero bytes": (b"", {}),
    "blanks": (b" \n", {}),
    "no groups": (b"{}", {}),
    "an empty group": (b'{"g":{}}', {"g": {}}),
    "a group without members": (b'{"g":null}', {"g": {}}),
    "Pulsar's": (
        b'{"g":{"bk:3181":{"rack":"/r","hostname":"h"}}}',
        {"g": {"bk:3181": RackInfo(rack="/r", hostname="h")}},
    ),
    "more fields": (b'{"g":{"bk":{"rack":"/r","x":{"y":1}}}}', {"g": {"bk": RackInfo(rack="/r")}}),
    "no info": (b'{"g":{"bk":null}}', {"g": {"bk": RackInfo()}}),
}


@for_each(("data", "groups"), GROUPS.values(), ids=GROUPS)
def test_groups_are_understood(data: bytes, groups: dict[str, Any]) -> None:
    assert parse_groups(data) == groups


NO_GROUPS: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"rack=1", "Invalid JSON"),
    "half of it": (b'{"g":{"bk"', "Invalid JSON"),
    "no text": (b"\xff\xfe", "Invalid JSON"),
    "nothing": (b"null", "Input should be an object"),
    "a list": (b"[]", "Input should be an object"),
    "a list of members": (b'{"g":["bk"]}', "g: "),
    "a rack that is none": (b'{"g":{"bk":{"rack":7}}}', "g.bk.rack: "),
}


@for_each(("data", "message"), NO_GROUPS.values(), ids=NO_GROUPS)
def test_what_is_no_groups_is_refused_with_its_place(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_groups(data)


AFFINITIES: dict[str, tuple[bytes, tuple[Any, ...] | None]] = {
    "zero bytes": (b"", None),
    "none": (b'{"bundles":{}}', None),
    "null": (b'{"bookieAffinityGroup":null}', None),
    "empty": (b'{"bookieAffinityGroup":{"bookkeeperAffinityGroupPrimary":""}}', None),
    "primary": (b'{"bookieAffinityGroup":{"bookkeeperAffinityGroupPrimary":"a"}}', (("a",), (), None)),
    "several, untidy": (
        b'{"bookieAffinityGroup":{"bookkeeperAffinityGroupPrimary":" a,b ,,a","bookkeeperAffinityGroupSecondary":"c"}}',
        ((" a", "b ", "a"), ("c",), None),
    ),
    "secondary null": (
        b'{"bookieAffinityGroup":{"bookkeeperAffinityGroupPrimary":"*","bookkeeperAffinityGroupSecondary":null}}',
        (("*",), (), None),
    ),
    "strict": (b'{"bookieAffinityGroup":{"bookkeeperAffinityGroupPrimary":"a","strict":true}}', (("a",), (), True)),
}


@for_each(("data", "expected"), AFFINITIES.values(), ids=AFFINITIES)
def test_affinity_is_understood(data: bytes, expected: tuple[Any, ...] | None) -> None:
    affinity = parse_affinity(data)
    assert (affinity and (affinity.primary, affinity.secondary, affinity.strict)) == expected


PERSISTENCES: dict[str, tuple[bytes, tuple[int | None, ...] | None]] = {
    "zero bytes": (b"", None),
    "none": (b'{"persistence":null}', None),
    "all": (
        b'{"persistence":{"bookkeeperEnsemble":3,"bookkeeperWriteQuorum":2,"bookkeeperAckQuorum":1,"x":0.0}}',
        (3, 2, 1),
    ),
    "more than any cluster has": (b'{"persistence":{"bookkeeperEnsemble":1000000}}', (10_000, None, None)),
    "the broker's": (
        b'{"persistence":{"bookkeeperEnsemble":0,"bookkeeperWriteQuorum":0,"bookkeeperAckQuorum":-1}}',
        (None, None, None),
    ),
}


@pytest.mark.parametrize(("data", "expected"), PERSISTENCES.values(), ids=PERSISTENCES)
def test_persistence_is_understood(data: bytes, expected: tuple[int | None, ...] | None) -> None:
    persistence = parse_persistence(data)
    found = persistence and (persistence.ensemble_size, persistence.write_quorum, persistence.ack_quorum)
    assert found == expected


@pytest.mark.parametrize("data", [b"[]", b'{"bookieAffinityGroup":{"bookkeeperAffinityGroupPrimary":7}}', b"{"])
def test_what_is_no_affinity_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"Invalid JSON|Input should be"):
        parse_affinity(data)


@pytest.mark.parametrize("count", ['"3x"', 2.5])
def test_a_count_that_is_none_is_refused(count: object) -> None:
    with pytest.raises(ValueError, match=r"persistence\.bookkeeperEnsemble: "):
        parse_persistence(f'{{"persistence":{{"bookkeeperEnsemble":{count}}}}}'.encode())
