"""A rehearsal: how it ends, and that nothing of it stays. On real servers: tests/system/test_high_availability.py."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streaming import query as rehearsal
from streaming.host import PolicyHost
from streaming.query import Wiring, rehearse
from streaming.settings import StreamSettings


class Query:
    """A query that is all there is of Spark; it writes down what it was told, and has a checkpoint while it runs."""

    def __init__(self, *, batch_after: int | None = None, fails: bool = False) -> None:
        self.asked = 0
        self.isActive = not fails
        self.told: dict[str, Any] = {}
        self.is_stopped = False
        self._batch_after = batch_after

    @property
    def lastProgress(self) -> object | None:  # noqa: N802 - Spark's name
        self.asked += 1
        return object() if self._batch_after is not None and self.asked > self._batch_after else None

    def stop(self) -> None:
        self.is_stopped = True

    def decided(self, _spark: Any, wiring: Wiring, _host: PolicyHost, settings: StreamSettings) -> Any:
        self.told |= {"wiring": wiring, "records": settings.max_records_per_batch}
        return SimpleNamespace(writeStream=self)

    def format(self, sink: str) -> "Query":
        self.told["sink"] = sink
        return self

    def option(self, _name: str, checkpoint: str) -> "Query":
        self.told["checkpoint"] = Path(checkpoint.removeprefix("file://"))
        return self

    def queryName(self, name: str) -> "Query":  # noqa: N802 - Spark's name
        self.told["name"] = name
        return self

    def outputMode(self, _mode: str) -> "Query":  # noqa: N802 - Spark's name
        return self

    def trigger(self, **_when: str) -> "Query":
        return self

    def start(self) -> "Query":
        self.told["checkpoint"].mkdir()
        return self


def rehearsed(
    monkeypatch: pytest.MonkeyPatch, scratch: Path, query: Query, over: threading.Event | None = None
) -> bool:
    monkeypatch.setattr(rehearsal, "decide", query.decided)
    monkeypatch.setattr(rehearsal, "_REHEARSAL_POLL_SECONDS", 0.0)
    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(_gateway=SimpleNamespace(scratch=SimpleNamespace(path=scratch)))
    )
    wiring = Wiring({}, "headgate", "/srv/checkpoint")
    return rehearse(spark, wiring, PolicyHost(), StreamSettings(), over or threading.Event())


def test_it_is_one_batch_of_few_records_that_goes_nowhere_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    query = Query(batch_after=2)
    assert rehearsed(monkeypatch, tmp_path, query)
    assert (query.told["sink"], query.told["records"], query.is_stopped) == ("noop", 1, True)
    assert query.told["name"] != "headgate", "else its batch would be taken for one of the query"
    assert query.told["checkpoint"].is_relative_to(tmp_path)
    assert query.told["wiring"].checkpoint_dir == query.told["checkpoint"]
    assert list(tmp_path.iterdir()) == []


def test_it_is_given_up_when_the_query_is_to_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    over, query = threading.Event(), Query()
    over.set()
    assert not rehearsed(monkeypatch, tmp_path, query, over)
    assert (query.asked, query.is_stopped) == (1, True)


@pytest.mark.parametrize(
    ("query", "longest_seconds"),
    [(Query(), 0.0), (Query(fails=True), 60.0)],
    ids=["no record in any topic", "it fails"],
)
def test_it_ends_where_no_batch_comes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, query: Query, longest_seconds: float
) -> None:
    monkeypatch.setattr(rehearsal, "_LONGEST_REHEARSAL_SECONDS", longest_seconds)
    assert not rehearsed(monkeypatch, tmp_path, query)
    assert query.is_stopped
