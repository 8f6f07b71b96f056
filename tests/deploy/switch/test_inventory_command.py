"""`headgate switch inventory`: all or nothing, the manifest only after what it counts, and what is said of it."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

import pytest

from connectors.kafka.connection import KafkaConnection
from deploy.settings.application import Settings
from deploy.switch import inventory_command
from deploy.switch.inventory_command import inventory_topic, publish_inventory
from policies.errors import UserError
from policies.switching.precheck.snapshot import TargetLedgers
from policies.switching.references import LedgerKind, Reference

REFERENCES = [
    Reference(LedgerKind.CURSOR, f"/managed-ledgers/t/n/persistent/topic/s{n}", n, None) for n in range(3_500)
]


@dataclass
class Kafka:
    """A publisher that takes what it is given, unless it is to leave something."""

    taken: list[bytes] = field(default_factory=list)
    left: int = 0
    flushed_at: list[int] = field(default_factory=list)

    def __call__(self, *asked: object, **more: object) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def publish(self, topic: str, key: str, value: bytes, *more: object) -> None:
        self.taken.append(value)

    def flush(self, seconds: float) -> int:
        self.flushed_at.append(len(self.taken))
        return self.left


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    kafka = Kafka()
    monkeypatch.setattr(inventory_command, "Publisher", kafka)
    monkeypatch.setattr(
        inventory_command, "inventory_topic", lambda settings: (KafkaConnection(bootstrap_servers="k:9092"), "observed")
    )
    return kafka


def reads(
    monkeypatch: pytest.MonkeyPatch, *problems: str, existing: TargetLedgers | None, references: Any = REFERENCES
) -> None:
    """What the precheck's reading finds."""
    snapshot = SimpleNamespace(references=tuple(references), existing=existing, staying=(), left_out=())
    checked = SimpleNamespace(taken=SimpleNamespace(problems=problems, snapshot=snapshot))
    monkeypatch.setattr(inventory_command, "check", lambda *asked: checked)
    monkeypatch.setattr(inventory_command, "bookkeeper_clusters", lambda *asked: None)


NONE_THERE = TargetLedgers(ids=frozenset(), read_ms=0, listed=True, facts={})


def types(kafka: Kafka) -> list[str]:
    return [json.loads(value)["type"] for value in kafka.taken]


def test_the_manifest_comes_last_and_after_all_parts_were_taken(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inventory_command, "_AT_ONCE", 1)
    reads(monkeypatch, existing=NONE_THERE)
    assert publish_inventory(Settings(), "c1", "new", as_json=False)
    *parts, manifest = types(kafka)
    assert set(parts) == {"headgate.switch-inventory-part.v1"}
    assert manifest == "headgate.switch-inventory.v1"
    assert kafka.flushed_at == list(range(1, len(kafka.taken) + 1)), "each is taken before the next is made"
    assert f"3500 references in {len(parts)} parts" in capsys.readouterr().out


def test_a_program_gets_it_in_json(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reads(monkeypatch, existing=NONE_THERE, references=REFERENCES[:1])
    publish_inventory(Settings(), "c1", "new", as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert (said["cluster"], said["target"], said["references"], said["parts"]) == ("c1", "new", 1, 1)
    assert said["inventory"] == json.loads(kafka.taken[-1])["data"]["inventory"]


def test_records_say_who_made_them(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch, existing=NONE_THERE, references=REFERENCES[:2])
    publish_inventory(Settings(), "c1", "new", as_json=True)
    assert json.loads(kafka.taken[0])["source"] == "headgate/switch-inventory"


@pytest.mark.parametrize(
    ("problems", "existing"),
    [(("/managed-ledgers/x: damaged",), NONE_THERE), ((), None)],
    ids=["not all is read", "the target is unknown"],
)
def test_one_that_is_not_whole_is_not_published(
    kafka: Kafka,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    problems: tuple[str, ...],
    existing: TargetLedgers | None,
) -> None:
    reads(monkeypatch, *problems, existing=existing)
    assert not publish_inventory(Settings(), "c1", "new", as_json=True)
    said = capsys.readouterr()
    assert (kafka.taken, said.out) == ([], "")
    assert [f"not read: {problem}" for problem in problems] == said.err.splitlines()[:-1]
    assert "Nothing is published" in said.err


def test_without_all_parts_taken_no_manifest_is_sent(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory_command, "_AT_ONCE", 1)
    reads(monkeypatch, existing=NONE_THERE)
    kafka.left = 1
    with pytest.raises(UserError, match="observed did not accept all records, so the inventory does not count"):
        publish_inventory(Settings(), "c1", "new", as_json=False)
    assert types(kafka) == ["headgate.switch-inventory-part.v1"]


def test_a_missing_topic_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = frozenset({"headgate.observed.switches"})
    monkeypatch.setattr(inventory_command, "check_topics", lambda *asked: SimpleNamespace(missing=missing))
    settings = Settings.model_validate({"kafka": {"bootstrap_servers": "k:9092"}})
    with pytest.raises(UserError, match=r"topics are missing: headgate\.observed\.switches\. Create them"):
        inventory_topic(settings)


def test_a_cluster_that_the_settings_do_not_name_is_told_before_kafka_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory_command, "inventory_topic", lambda settings: pytest.fail("was asked"))
    with pytest.raises(UserError, match="name no cluster c2; they name none"):
        publish_inventory(Settings(), "c2", "new", as_json=False)
