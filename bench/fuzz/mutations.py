"""Changes documents as an attacker or a bad day does: parts of the JSON, or plain bytes."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

STRANGE: Sequence[Any] = (
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 0.0, -0.0, 0.1, 1e308, float("nan"),
    float("inf"), "", " ", "0", "x" * 300, "é\u202e", "\x00", "\x1b[2J", "*", "../..", "%s{}", "a\nb",
    "2026-11-21T08:00:00Z", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+14:00", [], {}, [[]], [None], {"": {}},
)  # fmt: skip
"""Values that replace a valid value."""

_SNIPPETS = (
    b"", b"\x00", b"\xff", b"[" * 50, b"[" * 5000 + b"]" * 5000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"9" * 5000,
    b'{"a":', b"}", b'"', b"\\ud800", b"1e999", b",", b"-", b"\xc2\x9b",
)  # fmt: skip


def mutated(random: Random, seed: bytes) -> bytes:
    """A document that differs from a good one in a few places."""
    for _ in range(random.randint(1, 4)):
        seed = _in_json(random, seed) if random.random() < 0.7 else _in_bytes(random, seed)
    return seed


def _in_bytes(random: Random, text: bytes) -> bytes:
    start = random.randint(0, len(text))
    end = min(len(text), start + random.choice((0, 1, 1, 4, 50)))
    put = random.choice((*_SNIPPETS, text[end : end + 30], bytes([random.randint(0, 255)])))
    return text[:start] + put + text[end:]


def _in_json(random: Random, text: bytes) -> bytes:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _in_bytes(random, text)
    places = list(_places(document))
    if not places:
        return json.dumps(random.choice(STRANGE)).encode()
    holder, key = random.choice(places)
    match random.randint(0, 4):
        case 0:
            del holder[key]
        case 1:
            other_holder, other_key = random.choice(places)
            holder[key] = json.loads(json.dumps(other_holder[other_key]))
        case 2 if isinstance(holder, list):
            holder.extend(holder[:50])
        case 3 if isinstance(holder, dict):
            holder[random.choice(("", "x" * 300, "\x1b", "cluster", "0"))] = holder.pop(key)
        case _:
            holder[key] = random.choice(STRANGE)
    return json.dumps(document).encode()


def _places(document: Any) -> "list[tuple[Any, Any]]":
    """Every value in a document, by its container."""
    found: list[tuple[Any, Any]] = []
    ahead = [document]
    while ahead:
        holder = ahead.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        found += [(holder, key) for key in keys]
        ahead += [holder[key] for key in keys]
    return found
