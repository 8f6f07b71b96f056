"""A signature counts for one record, one side's keys and about one instant; everything else is refused with why."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.signatures import Author, Serial, Signatures, author, key_id

NOW = 1_800_000_000_000
OLD, NEW, OTHER = b"o" * 64, b"n" * 64, b"x" * 64
OBSERVED, DECIDED, COMMANDS = "headgate.observed.log-dirs", "headgate.decided.throttle", "headgate.commands"
NO_SIGNATURE = "the header headgate-signature is no signature of version v1 or v2"
SIGNATURES = Signatures({Author.OBSERVER: (NEW, OLD), Author.LOOP: (OTHER,)})

Parts = tuple[str, bytes | None, bytes | None, str | None, int]


def signed(signatures: Signatures = SIGNATURES, value: bytes | None = b"{}") -> Parts:
    return OBSERVED, b"payments", value, signatures.sign(OBSERVED, "payments", value, NOW), NOW


@pytest.mark.parametrize("value", [b"{}", b"", None], ids=["value", "empty", "tombstone"])
def test_what_is_signed_is_believed(value: bytes | None) -> None:
    assert SIGNATURES.refusal(*signed(value=value)) is None


@given(
    st.sampled_from(range(4)),
    st.integers(0, 3),
    st.binary(min_size=1, max_size=8),
)
def test_no_part_of_a_record_can_be_exchanged(part: int, at: int, other: bytes) -> None:
    parts: list[Any] = list(signed())
    changed = {
        0: OBSERVED + ".x" * (at + 1) + ".observed.log-dirs",
        1: b"payments" + other,
        2: b"{}" + other,
        3: str(parts[3]).replace(f";{NOW};", f";{NOW + at + 1};"),
    }
    parts[part] = changed[part]
    assert SIGNATURES.refusal(*parts) == "signed, but not this topic, key and value"


def test_bytes_cannot_be_moved_from_the_key_to_the_value() -> None:
    topic, _, _, signature, at = signed(value=b"abc")
    assert SIGNATURES.refusal(topic, b"paymentsa", b"bc", signature, at) is not None
    assert SIGNATURES.refusal(topic, b"payments", None, SIGNATURES.sign(topic, "payments", b"", at), at) is not None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda s: None, "no header headgate-signature"),
        (lambda s: "", NO_SIGNATURE),
        (lambda s: "garbage", NO_SIGNATURE),
        (lambda s: s.replace("v1", "v2"), NO_SIGNATURE),
        (lambda s: s.replace(str(NOW), "²"), NO_SIGNATURE),
        (
            lambda s: s.replace(str(NOW), "9" * 5000),
            "the header headgate-signature is no signature of version v1 or v2",
        ),
        (lambda s: s.replace(str(NOW), "-1"), NO_SIGNATURE),
        (lambda s: s.replace(key_id(NEW), key_id(OTHER)), "signed with a key that is not among those of this topic"),
        (lambda s: s[:-1], "signed, but not this topic, key and value"),
        (lambda s: s[:-1] + "é", "signed, but not this topic, key and value"),
    ],
)
def test_a_refusal_says_why(change: Callable[[str], str | None], why: str) -> None:
    topic, key, value, signature, at = signed()
    assert SIGNATURES.refusal(topic, key, value, change(str(signature)), at) == why


@pytest.mark.parametrize(
    ("appended", "why"),
    [
        (NOW + 300_000, None),
        (NOW - 300_000, None),
        (NOW + 301_000, "signed 301 s before it was appended"),
        (NOW - 86_400_000, "signed 86400 s after it was appended"),
    ],
)
def test_a_signature_counts_near_its_time(appended: int, why: str | None) -> None:
    assert SIGNATURES.refusal(*signed()[:4], appended) == why


def test_keys_are_changed_one_process_after_the_other() -> None:
    """Each believes both keys before any signs with the new one."""
    steps = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]
    sides = [Signatures({Author.OBSERVER: keys}) for keys in steps]
    for one, next_one in pairwise(sides):
        assert one.refusal(*signed(next_one)) is None
        assert next_one.refusal(*signed(one)) is None
    assert sides[-1].refusal(*signed(sides[0])) is not None


def test_a_side_without_keys_neither_signs_nor_is_asked() -> None:
    assert SIGNATURES.sign(COMMANDS, "payments", b"{}", NOW) is None
    assert SIGNATURES.refusal(COMMANDS, b"payments", b"{}", None, NOW) is None


def test_one_sides_key_does_not_count_on_the_others_topics() -> None:
    forged = Signatures({Author.LOOP: (NEW,)}).sign(DECIDED, "payments", b"{}", NOW)
    assert SIGNATURES.refusal(DECIDED, b"payments", b"{}", forged, NOW) is not None


def test_where_signatures_are_not_required_they_are_made_and_not_asked_for() -> None:
    lenient = Signatures({Author.OBSERVER: (NEW,)}, required=False)
    assert lenient.refusal(OBSERVED, b"payments", b"{}", None, NOW) is None
    assert SIGNATURES.refusal(*signed(lenient)) is None


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (OBSERVED, Author.OBSERVER),
        ("a.b.observed.pulsar-sessions", Author.LOOP),
        ("x.commands", Author.PERSON),
        (DECIDED, Author.LOOP),
        ("headgate.audit", Author.LOOP),
        ("headgate.observed.no-such", Author.LOOP),
    ],
)
def test_a_topic_has_one_author(topic: str, expected: Author) -> None:
    assert author(topic) is expected


def test_keys_are_not_shown() -> None:
    assert "nnn" not in repr(SIGNATURES)
    assert "nnn" not in str(SIGNATURES.sign(OBSERVED, "k", b"", NOW))


SENDER = "0123456789abcdef"


def numbered(number: int, sender: str = SENDER) -> Parts:
    signature = SIGNATURES.sign(OBSERVED, "payments", b"{}", NOW, Serial(sender, number))
    return OBSERVED, b"payments", b"{}", signature, NOW


def test_a_record_has_a_place_among_those_of_its_sender() -> None:
    topic, _, _, signature, _ = parts = numbered(7)
    assert SIGNATURES.refusal(*parts) is None
    assert SIGNATURES.serial(topic, signature) == Serial(SENDER, 7)
    assert SIGNATURES.serial(topic, signed()[3]) is None


@pytest.mark.parametrize(
    "forge",
    [
        lambda s: s.replace(";7;", ";8;"),
        lambda s: s.replace(SENDER, "f" * 16),
        lambda s: "v1;" + ";".join((*s.split(";")[1:3], s.split(";")[5])),
    ],
    ids=["number", "sender", "version"],
)
def test_that_place_cannot_be_exchanged(forge: Callable[[str], str]) -> None:
    topic, key, value, signature, at = numbered(7)
    assert (
        SIGNATURES.refusal(topic, key, value, forge(str(signature)), at) == "signed, but not this topic, key and value"
    )
