"""Whatever others write, it is read or refused: documents that were trouble once, and changed ones."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.fuzz import TARGETS
from tests.examples import examples

CORPUS = Path(__file__).parents[1] / "data" / "fuzz"
KEPT = sorted(CORPUS.glob("*/*"))

SHARES = {"exporter": 3, "rest": 3, "settings": 3}
"""Fewer examples of those that take longer."""


@pytest.mark.parametrize("file", KEPT)
def test_what_was_trouble_once_is_none_any_more(file: Path) -> None:
    TARGETS[file.parent.name](file.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_good_documents_are_read(name: str) -> None:
    for seed in TARGETS[name].seeds:
        TARGETS[name](seed)


WORDS = ("../..", "%s{}", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+14:00", "é\u202e", "\x1b[2J")
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=300)
    | st.sampled_from(WORDS)
)  # fmt: skip
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(max_size=5), SCALARS, max_size=2)
BYTES = st.binary(max_size=8) | st.sampled_from(
    (b"[" * 5000 + b"]" * 5000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"9" * 5000, b"\\ud800", b"1e999", b"\xc2\x9b")
)


@st.composite
def changed(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A valid document that differs in a few values, and then perhaps in a few bytes."""
    text = draw(st.sampled_from(seeds))
    with suppress(ValueError):  # YAML
        document = json.loads(text)
        for _ in range(draw(st.integers(0, 3))):
            found = places(document)
            holder, key = found[draw(st.integers(0, len(found) - 1))] if found else ([document], 0)
            other_holder, other_key = found[draw(st.integers(0, len(found) - 1))] if found else (holder, key)
            match draw(st.sampled_from(("delete", "copy", "replace", "replace"))):
                case "delete":
                    del holder[key]
                case "copy":
                    holder[key] = json.loads(json.dumps(other_holder[other_key]))
                case _:
                    holder[key] = draw(VALUES)
        text = json.dumps(document).encode()
    for _ in range(draw(st.sampled_from((0, 0, 1, 2)))):
        start, length = draw(st.integers(0, len(text))), draw(st.sampled_from((0, 1, 4, 50)))
        text = text[:start] + draw(BYTES) + text[start + length :]
    return text


def places(holder: Any) -> list[tuple[Any, Any]]:
    """Every value in a document, by its container."""
    keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
    return [place for key in keys for place in ((holder, key), *places(holder[key]))]


@pytest.mark.parametrize("name", TARGETS)
def test_changed_documents_are_read_or_refused(name: str) -> None:
    @settings(examples(SHARES.get(name, 6)), suppress_health_check=list(HealthCheck))
    @given(changed(TARGETS[name].seeds))
    def read(document: bytes) -> None:
        TARGETS[name](document)

    read()
