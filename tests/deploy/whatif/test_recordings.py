"""What is read from the topics to be replayed."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from connectors.kafka.tail import Record
from deploy import whatif
from deploy.settings.application import Settings
from policies.units import to_millis

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_each_record_of_the_observed_topics_is_read_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: Any) -> Iterator[Record]:
        for number in range(2):
            yield Record("headgate.observed.log-dirs", b"payments", b"{}", to_millis(NOON), 0, number)

    monkeypatch.setattr(whatif, "read_history", read)
    settings = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:9092"}})
    found = list(whatif.read_events_of_topics(settings, NOON, NOON))
    assert [each.place[-1] for each in found] == ["0", "1"]
    assert {each.topic for each in found} == {"observed.log-dirs"}
