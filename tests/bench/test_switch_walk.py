"""Short walks over a fleet that does nothing at its time; `make walk` goes as far as one likes."""

import pytest

from bench.switch_walk.__main__ import walks
from policies.switching.judge import guards


def test_no_walk_does_harm_and_each_finds_a_way_out() -> None:
    assert walks(40, 100) == (4000, {})


@pytest.mark.parametrize("seed", [100063], ids=["an older registry of the same millisecond"])
def test_no_walk_that_once_did_harm_does_it_again(seed: int) -> None:
    assert walks(1, 100, seed)[1] == {}


@pytest.mark.parametrize("name", ["future_is_disjoint", "brokers_follow", "way_back_is_beyond", "ids_only_grow"])
def test_walks_find_the_harm_of_a_missing_guard(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, name, lambda *_args, **_more: None)
    assert any(walks(1, 100, seed)[1] for seed in range(400))
