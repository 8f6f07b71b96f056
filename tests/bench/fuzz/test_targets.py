"""Whatever others write, it is read or refused: documents that were trouble once, and changed ones."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.fuzz.mutations import mutated
from bench.fuzz.targets import TARGETS
from tests.examples import examples

CORPUS = Path(__file__).parents[2] / "data" / "fuzz"
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


@pytest.mark.parametrize("name", TARGETS)
def test_changed_documents_are_read_or_refused(name: str) -> None:
    @settings(examples(SHARES.get(name, 6)), suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(TARGETS[name].seeds), st.randoms(use_true_random=False))
    def read(seed: bytes, random: Random) -> None:
        TARGETS[name](mutated(random, seed))

    read()
