"""Signed records: a person who can write to a topic, or operates its brokers, is not trusted without a key.

A signature is a record header, `headgate-signature: v2;KEY ID;SIGNED AT;SENDER;COUNTER;HMAC-SHA256 in hexadecimal`.
It covers topic, key, value, that time, the sender and its counter. So a record is valid only for its own topic and key,
and near its signing time. The query takes each record once: a sender counts its records, and draws a new name when it
starts. `v1;KEY ID;SIGNED AT;HMAC` has no sender; decisions have it, because their own sequence orders them. A process
that can verify can also sign, so give each side its own keys. Rules: docs/design/threats.md. Pure.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from policies.closed_enum import ClosedEnum
from policies.registry import COMMANDS, observed_topics

HEADER = "headgate-signature"
REPEATED_MS = 30_000
"""A record signed this much earlier than one that was appended before it is a repetition. A publisher gives up after
ten seconds, and synchronised clocks differ by less."""

_HEADER = re.compile(
    r"(?:v1|(?P<v2>v2));(?P<key_id>[^;]*);(?P<signed_ms>[0-9]{1,15});"
    r"(?(v2)(?P<sender>[0-9a-f]{16});(?P<number>[0-9]{1,15});)(?P<mac>[^;]*)"
)
_ABSENT = b"\xff" * 8


class Author(ClosedEnum):
    """The owner of the keys with which a topic's records are signed."""

    OBSERVER = "observed", "Collectors and executors, for their readings."
    LOOP = "decided", "The query for its decisions, actuators for their reports."
    PERSON = "commands", "People, for their commands."


class Serial(NamedTuple):
    """The place of a record among those of its sender."""

    sender: str
    """16 hexadecimal digits, drawn when the sender starts."""
    number: int
    """Grows with each record of the sender."""


@dataclass(frozen=True)
class Signatures:
    """Signs records and checks signatures.

    Args:
        keys: of each author; the first one signs, all are accepted. Records of an author without keys are not signed.
        required: whether a record without a valid signature is refused; otherwise records are signed, but not checked.
        tolerance_ms: the longest time between signing and appending, either way.
    """

    keys: Mapping[Author, tuple[bytes, ...]] = field(repr=False)
    required: bool = True
    tolerance_ms: int = 300_000

    def sign(self, topic: str, key: str, value: bytes | None, now_ms: int, serial: Serial | None = None) -> str | None:
        """Return the header's value; None if this topic's records are not signed.

        Args:
            topic: with its prefix.
            value: None for a tombstone.
            serial: the sender's count; None: the record may be taken more than once, as far as its time allows.
        """
        keys = self.keys.get(author(topic), ())
        if not keys:
            return None
        mac = _mac(keys[0], topic, key.encode(), value, now_ms, serial)
        parts = ("v1", key_id(keys[0]), now_ms) if serial is None else ("v2", key_id(keys[0]), now_ms, *serial)
        return ";".join(map(str, (*parts, mac)))

    def signed_ms(self, topic: str, signature: str | None) -> int:
        """When an accepted record was signed; 0 if signatures are not required."""
        found = self._find(topic, signature)
        return int(found["signed_ms"]) if found else 0

    def serial(self, topic: str, signature: str | None) -> Serial | None:
        """An accepted record's place among those of its sender; None if it has none, or signatures are not required."""
        found = self._find(topic, signature)
        return _serial(found) if found else None

    def _find(self, topic: str, signature: str | None) -> re.Match[str] | None:
        return _HEADER.fullmatch(signature or "") if self.required and self.keys.get(author(topic)) else None

    def refusal(
        self, topic: str, key: bytes | None, value: bytes | None, signature: str | None, appended_ms: int
    ) -> str | None:
        """Why a record is refused, in one clause; None: it is accepted."""
        keys = self.keys.get(author(topic), ())
        if not keys or not self.required:
            return None
        if signature is None:
            return f"no header {HEADER}"
        if (found := _HEADER.fullmatch(signature)) is None:
            return f"the header {HEADER} is no signature of version v1 or v2"
        signer = next((each for each in keys if key_id(each) == found["key_id"]), None)
        if signer is None:
            return "signed with a key that is not among those of this topic"
        signed_ms = int(found["signed_ms"])
        mac = _mac(signer, topic, key or b"", value, signed_ms, _serial(found))
        if not hmac.compare_digest(mac.encode(), found["mac"].encode()):
            return "signed, but not this topic, key and value"
        if abs(appended_ms - signed_ms) > self.tolerance_ms:
            side = "before" if signed_ms < appended_ms else "after"
            return f"signed {abs(appended_ms - signed_ms) / 1000:.0f} s {side} it was appended"
        return None


@cache
def author(topic: str) -> Author:
    """The author of a topic's records, by its full name."""
    if topic.endswith(f".{COMMANDS}"):
        return Author.PERSON
    observed = tuple(f".{name}" for name in observed_topics())
    return Author.OBSERVER if topic.endswith(observed) else Author.LOOP


def key_id(key: bytes) -> str:
    """Eight hexadecimal digits that identify a key without revealing it."""
    return hashlib.sha256(b"headgate key id" + key).hexdigest()[:8]


def _serial(found: re.Match[str]) -> Serial | None:
    return Serial(found["sender"], int(found["number"])) if found["sender"] else None


def _mac(
    secret: bytes, topic: str, key: bytes, value: bytes | None, signed_ms: int, serial: Serial | None = None
) -> str:
    """Sign each part with its length, so that no two records have the same text."""
    mac = hmac.new(secret, b"headgate v1" if serial is None else b"headgate v2", hashlib.sha256)
    counted = () if serial is None else (serial.sender.encode(), str(serial.number).encode())
    for part in (topic.encode(), str(signed_ms).encode(), *counted, key, value):
        mac.update(_ABSENT if part is None else len(part).to_bytes(8, "big") + part)
    return mac.hexdigest()
