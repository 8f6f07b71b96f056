"""The edit of `/bookies`: one entry more, and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.isolation.groups import add_member, find_group, parse_host, parse_racks
from policies.isolation.decisions import QUARANTINE_GROUP, QUARANTINE_RACK
from tests.cases import for_each

ENTRY = {"rack": "/headgate-quarantine", "hostname": "bk11"}
OURS = '"headgate-quarantine":{"bk11:3181":{"rack":"/headgate-quarantine","hostname":"bk11"}}'


def added(content: str | bytes, bookie: str = "bk11:3181") -> str:
    raw = content if isinstance(content, bytes) else content.encode()
    return add_member(parse_racks(raw), bookie, QUARANTINE_GROUP, QUARANTINE_RACK).decode()


@for_each(
    ("before", "after"),
    [
        pytest.param("", "{" + OURS + "}", id="zero bytes"),
        pytest.param(" \n", "{" + OURS + "}", id="white space"),
        pytest.param("{}", "{" + OURS + "}", id="no groups"),
        pytest.param(
            '{"z":{"b":{"rack":"/r"}},"a":{}}', '{"z":{"b":{"rack":"/r"}},"a":{},' + OURS + "}", id="order, empty group"
        ),
        pytest.param(
            '{"headgate-quarantine":{"bk9:1":{"rack":"/x","since":1.10}},"a":{"b":null}}',
            '{"headgate-quarantine":{"bk9:1":{"rack":"/x","since":1.10},"bk11:3181":'
            '{"rack":"/headgate-quarantine","hostname":"bk11"}},"a":{"b":null}}',
            id="the group is there: it keeps its place and members",
        ),
        pytest.param(
            '{"a":{"b":{"zone":[1.10,1E+2,-0.0,123456789012345678901234567890,{"x":null}],"rack":"/\\u00e9 é \\/"}}}',
            '{"a":{"b":{"zone":[1.10,1E+2,-0.0,123456789012345678901234567890,{"x":null}],"rack":"/\\u00e9 é \\/"}},'
            + OURS
            + "}",
            id="unknown fields, numbers and escapes stay the bytes they are",
        ),
        pytest.param(
            '{"a":{"b":{"big":' + "9" * 5000 + "}}}",
            '{"a":{"b":{"big":' + "9" * 5000 + "}}," + OURS + "}",
            id="a number too long for Python",
        ),
    ],
)  # fmt: skip
def test_one_entry_is_added_and_the_rest_is_as_it_was(before: str, after: str) -> None:
    assert added(before) == after


@for_each(
    ("bookie", "host"),
    [
        ("bk11:3181", "bk11"),
        ("10.0.0.7:3181", "10.0.0.7"),
        ("[::1]:3181", "[::1]"),
        ("bookie-7f3a", None),
        ("rack:a", None),
        (":3181", None),
    ],
)
def test_the_host_is_named_where_the_id_holds_one(bookie: str, host: str | None) -> None:
    assert parse_host(bookie) == host
    entry = json.loads(added("{}", bookie))[QUARANTINE_GROUP][bookie]
    assert entry == {"rack": QUARANTINE_RACK, **({"hostname": host} if host else {})}


@for_each(
    "content",
    [
        pytest.param(b"{", id="cut short"),
        pytest.param(b"{}x", id="something after it"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"a":null}', id="a group that is null"),
        pytest.param(b'{"a":["bk1:3181"]}', id="a group that is a list"),
        pytest.param(b'{"version":3}', id="a number among the groups"),
        pytest.param(b'{"a":{"b":"/rack"}}', id="a bookie that is a text"),
        pytest.param(b'{"a":{"b":{"x":NaN}}}', id="not a number"),
        pytest.param(b'{"a":{"b":{"x":01}}}', id="a number that is none"),
        pytest.param(b'{"a":{"b":{}},"a":{"c":{}}}', id="a group twice"),
        pytest.param(b'{"a":{"b":{},"b":{}}}', id="a bookie twice"),
        pytest.param(b'{"a":{"b":{"x":{"y":1,"y":2}}}}', id="an unknown field twice"),
        pytest.param(b'{"a":{"b":{"x":"\xff"}}}', id="not UTF-8"),
        pytest.param(b'{"a":{"b":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}}", id="nested too deeply"),
        pytest.param(b"\xef\xbb\xbf{}", id="a byte order mark"),
    ],
)
def test_what_is_not_understood_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_racks(content)


def test_the_refusal_quotes_nothing_of_the_content() -> None:
    with pytest.raises(ValueError, match=r"^((?!swordfish).)*$"):
        parse_racks(b'{"a":{"b":"swordfish"}}')


@pytest.mark.parametrize("info", ['{"rack":"/r"}', "{}", "null"])
def test_a_bookie_in_a_group_is_never_added(info: str) -> None:
    racks = parse_racks(b'{"a":{},"b":{"bk11:3181":' + info.encode() + b"}}")
    assert find_group(racks, "bk11:3181") == "b"
    with pytest.raises(ValueError, match="in a group already"):
        add_member(racks, "bk11:3181", QUARANTINE_GROUP, QUARANTINE_RACK)


def test_ids_are_compared_as_registered() -> None:
    assert find_group(parse_racks(b'{"a":{"BK11:3181":{}}}'), "bk11:3181") is None


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from([QUARANTINE_GROUP, "bk11:3181"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
GROUPS = st.dictionaries(
    NAMES, st.dictionaries(NAMES, st.none() | st.dictionaries(NAMES, VALUES, max_size=3), max_size=4), max_size=4
)


@given(GROUPS, st.booleans(), st.sampled_from([None, 2]))
def test_the_edit_changes_nothing_but_the_one_added_entry(groups: Any, escaped: bool, indent: int | None) -> None:
    content = json.dumps(groups, ensure_ascii=escaped, indent=indent).encode()
    racks = parse_racks(content)
    if find_group(racks, "bk11:3181") is not None:
        return
    after = json.loads(add_member(racks, "bk11:3181", QUARANTINE_GROUP, QUARANTINE_RACK))
    assert after[QUARANTINE_GROUP].popitem() == ("bk11:3181", ENTRY)
    if QUARANTINE_GROUP not in groups:
        assert list(after)[-1] == QUARANTINE_GROUP
        assert after.pop(QUARANTINE_GROUP) == {}
    # As text, so that order and the kind of each number count.
    assert json.dumps(after) == json.dumps(groups)


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:ab01.e-\\ ', max_size=60).map(str.encode))
def test_whatever_the_content_it_is_understood_or_refused(content: bytes) -> None:
    try:
        racks = parse_racks(content)
    except ValueError:
        return
    if find_group(racks, "new:1") is None:
        grown = parse_racks(add_member(racks, "new:1", "g", "/g"))
        assert find_group(grown, "new:1") == "g"
