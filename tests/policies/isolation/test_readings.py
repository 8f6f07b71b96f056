"""What the readings of isolation take, and what is beyond any real cluster."""

import json
from typing import Any

import pytest

from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies
from policies.isolation.readings import NamespacePromise
from policies.wire import BadRecordError, EventReader

READER: EventReader[Any] = EventReader((Bookies, BookieRacks, BookieAffinity, NamespacePromise))
LONG = "x" * 5_000


def event(kind: Any, **data: Any) -> str:
    body = {"cluster": "c1", "outcome": "ok", **data}
    return json.dumps({"specversion": "1.0", "id": "1", "source": "t", "type": kind.event_type, "data": body})


def registered(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"bookie": f"b{n}", **more} for n in range(count)]


@pytest.mark.parametrize(
    "record",
    [
        event(Bookies, writable=[{"bookie": LONG}]),
        event(Bookies, writable=registered(10_001)),
        event(BookieRacks, groups={LONG: {}}),
        event(BookieRacks, groups={"g": {f"b{n}": {} for n in range(10_001)}}),
        event(BookieAffinity, namespaces={"t/n": {"secondary": [f"g{n}" for n in range(1_001)]}}),
        event(BookieAffinity, namespaces={f"t/n{n}": {} for n in range(50_001)}),
        event(BookieAffinity, broker_policies=[{"pulsar_cluster": "p", "name": "n", "primary": [LONG]}]),
        event(NamespacePromise, namespace="t/n", promise="never"),
    ],
)
def test_what_is_beyond_any_real_cluster_is_no_reading(record: str) -> None:
    with pytest.raises(BadRecordError):
        READER.read(record)


@pytest.mark.parametrize(
    "record",
    [
        event(Bookies, writable=registered(10_000), known=[f"b{n}" for n in range(20_000)]),
        event(BookieRacks, groups={"g": {"b" * 255: {"rack": "/r" * 2_000}, "": None}}),
        event(BookieRacks, groups=None),
        event(BookieAffinity, namespaces={f"t/n{n}": {"primary": ["g"]} for n in range(20_000)}),
        event(NamespacePromise, namespace="t/n", promise=None),
    ],
)
def test_a_large_one_is_read(record: str) -> None:
    READER.read(record)
