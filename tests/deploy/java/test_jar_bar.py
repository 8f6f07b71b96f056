"""Progress over several groups of jars: one count of bytes, that begins with the first and ends with the last."""

from pathlib import Path
from typing import Any

import pytest

from deploy.java import jar_bar
from deploy.java.jar_shares import read_coordinates
from deploy.java.jars import _COORDINATES, bytes_to_fetch, groups

SIZES = {"kafka": 45, "spark": 10}


def test_several_groups_are_counted_as_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    def ensure(group: str, _cache: Path, *, on_bytes: Any, **_: object) -> tuple[Path, ...]:
        for done in (0, SIZES[group] // 2, SIZES[group]):
            on_bytes(done, SIZES[group])
        return (Path(group),)

    monkeypatch.setattr(jar_bar, "ensure_jars", ensure)
    monkeypatch.setattr(jar_bar, "bytes_to_fetch", lambda group, _cache: SIZES[group])
    monkeypatch.setattr(jar_bar, "ByteLines", lambda _say, _what: lambda done, total: told.append((done, total)))
    assert jar_bar.fetched_groups(("kafka", "spark"), tmp_path, print) == [(Path("kafka"),), (Path("spark"),)]
    assert told == [(0, 55), (22, 55), (45, 55), (45, 55), (50, 55), (55, 55)]


def test_what_is_in_the_cache_is_not_counted(tmp_path: Path) -> None:
    known = read_coordinates(_COORDINATES)["spark"]
    everything = bytes_to_fetch("spark", tmp_path)
    assert everything == sum(each.size_bytes for each in known) > 0
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / known[0].file).touch()
    assert bytes_to_fetch("spark", tmp_path) == everything - known[0].size_bytes
    assert {"kafka", "spark"} <= set(groups())
