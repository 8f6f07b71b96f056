"""The generated references: complete, true, and found out when they are stale."""

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from connectors.kafka.topics import TopicSettings, is_shared, plan
from deploy.query.supervisor import QueryHealth
from deploy.settings.application import Settings
from deploy.settings.file import load_settings
from policies.policy import Tick, Timer
from policies.registry import POLICIES, decision_types, reading_types, report_policies
from policies.wire import AUDIT_TYPE, DEAD_LETTER_TYPE, LETTERS_COUNTED_TYPE, EventReader
from tests.cases import for_each
from tools import generate
from tools.reference.catalogue import DIALECT, EventKind, catalogue, classes_in, examples, rows
from tools.reference.pages import document, parts

ROOT = Path(__file__).parents[2]
KINDS = catalogue()
EXAMPLES = examples()
by_type = pytest.mark.parametrize("kind", KINDS, ids=[kind.event_type for kind in KINDS])


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return generate.generated()


@pytest.fixture
def folder(files: dict[str, str], tmp_path: Path) -> Path:
    generate.write(files, tmp_path)
    return tmp_path


@cache
def schema_of(kind: EventKind) -> dict[str, Any]:
    return kind.schema()


# Fresh or stale


def test_what_is_kept_in_the_repository_is_fresh(files: dict[str, str]) -> None:
    assert generate.stale(files, generate.ROOT) == []


def test_a_check_names_each_stale_file_and_changes_nothing_and_writing_mends_all(
    files: dict[str, str], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "generated", lambda: files)  # to make them again is tested, and takes a second
    changed, missing = (folder / generate.REFERENCE / "events.md", folder / generate.SCHEMAS / "headgate.alert.v1.json")
    left_over = folder / generate.SCHEMAS / "headgate.bygone.v1.json"
    changed.write_text("old")
    missing.unlink()
    left_over.write_text("{}")
    assert generate.main(["--check", "--root", str(folder)]) == 1
    said = capsys.readouterr()
    stale = sorted([changed, missing, left_over])
    assert said.err.splitlines() == [f"{file} is stale: run `make generate`" for file in stale]
    assert changed.read_text() == "old"
    assert generate.main(["--root", str(folder)]) == generate.main(["--check", "--root", str(folder)]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("in_kathmandu")
def test_the_environment_and_the_time_do_not_show(files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_HTTP__PORT", "1")
    monkeypatch.setenv("XDG_DATA_HOME", "/elsewhere")
    assert generate.generated() == files


# Schemas


def test_every_type_of_event_has_a_schema(files: dict[str, str]) -> None:
    registered = {r.event_type for r in reading_types()} | {d.event_type for d in decision_types()}
    reports = {report.event.event_type for kind in POLICIES.values() for report in kind.reports}
    of_core = {Timer.event_type, Tick.event_type, AUDIT_TYPE, DEAD_LETTER_TYPE, LETTERS_COUNTED_TYPE}
    types = registered | reports | of_core
    assert {kind.event_type for kind in KINDS} == types
    schemas = {f"{generate.SCHEMAS}/{each}.json" for each in types}
    assert {name for name in files if name.startswith(generate.SCHEMAS)} == schemas


@by_type
def test_a_schema_describes_the_whole_event_and_allows_unknown_fields(kind: EventKind) -> None:
    schema = schema_of(kind)
    assert schema["$schema"] == DIALECT
    assert schema["$id"] == f"urn:headgate:{kind.event_type}"
    assert schema["properties"]["type"] == {"const": kind.event_type}
    assert {"id", "source", "type", "data"} <= set(schema["required"])
    assert {"specversion", "subject", "time", "datacontenttype"} <= schema["properties"].keys()
    assert all(reference.removeprefix("#/$defs/") in schema["$defs"] for reference in _values_of("$ref", schema))
    assert False not in list(_values_of("additionalProperties", schema))


def test_the_numbers_of_a_decision_stand_in_the_audit_alone() -> None:
    with_numbers = [kind.event_type for kind in KINDS if '"numbers"' in json.dumps(schema_of(kind)["$defs"])]
    assert with_numbers == [AUDIT_TYPE]


def test_what_headgate_writes_is_whole_and_what_it_reads_may_leave_defaults_out() -> None:
    for kind in KINDS:
        data, known = kind.data_schema(), kind.data.model_fields
        left_out = {field for field in data["properties"] if field in known and known[field].exclude_if}
        optional = data["properties"].keys() - set(data["required"]) - left_out
        assert bool(optional) == kind.is_observed, kind.event_type


# Examples


def test_there_is_an_example_of_each_type() -> None:
    assert EXAMPLES.keys() == {kind.event_type for kind in KINDS}


@by_type
def test_an_example_fits_its_schema(kind: EventKind) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    schema = schema_of(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    example = EXAMPLES[kind.event_type]
    assert list(validator.iter_errors(example)) == []
    assert list(validator.iter_errors(example | {"type": "headgate.other.v1"}))
    assert list(validator.iter_errors(example | {"data": {}}))


@by_type
def test_an_example_has_the_fields_of_its_page(kind: EventKind) -> None:
    example = EXAMPLES[kind.event_type]
    fields = rows(kind.data_schema(), nested=False)
    # A recorded reading may be older than a field. Written fields that are not required belong to a pause, of which
    # there is no example.
    names = {row.name for row in fields if row.required or kind.mode == "validation"}
    assert example["data"].keys() <= names
    assert example["data"].keys() == names or kind.is_observed


@for_each("kinds", [reading_types(), decision_types()])
def test_examples_are_read_as_what_they_are(kinds: tuple[Any, ...]) -> None:
    reader: EventReader[Any] = EventReader(kinds)
    for kind in kinds:
        assert type(reader.read(json.dumps(EXAMPLES[kind.event_type])).data) is kind


def test_no_two_closed_sets_have_one_name(files: dict[str, str]) -> None:
    headings = re.findall(r"^### (.+)$", files[f"{generate.REFERENCE}/events.md"], flags=re.MULTILINE)
    assert len(headings) == len(set(headings))
    assert {"SwitchVerdict", "LedgerOutcome", "Mode"} <= set(headings)


def test_no_bound_is_shown_that_is_only_the_types(files: dict[str, str]) -> None:
    assert set(re.findall(r"at least (-[^ ;,]+)", files[f"{generate.REFERENCE}/events.md"])) == {"-1"}


def test_who_writes_what_a_policy_hears_is_told_apart() -> None:
    writers = {kind.event_type: kind.written_by for kind in KINDS if kind.is_observed}
    assert writers["headgate.log-dirs.v1"] == "the collectors"
    assert writers["headgate.switch-command.v1"] == "`headgate switch`"
    assert writers["headgate.switch-broker.v1"] == "each broker's agent"
    assert writers["headgate.switch-registry.v1"] == "the switching executor"


# AsyncAPI


def test_every_topic_is_a_channel_with_its_policy_of_cleaning_up() -> None:
    channels = document()["channels"].values()
    planned = {
        p.topic.removeprefix("headgate."): p.config["cleanup.policy"]
        for p in plan(TopicSettings())
        if not is_shared(p.topic)  # nothing is ever written there
    }
    assert {
        c["address"].removeprefix("{prefix}."): ",".join(c["bindings"]["kafka"]["topicConfiguration"]["cleanup.policy"])
        for c in channels
    } == planned


def test_references_of_the_document_resolve(files: dict[str, str], folder: Path) -> None:
    read = yaml.safe_load(files[f"{generate.REFERENCE}/asyncapi.yaml"])
    assert read == document()
    for reference in _values_of("$ref", read):
        place, _, pointer = reference.partition("#")
        found: Any = json.loads((folder / generate.REFERENCE / place).read_text()) if place else read
        for part in filter(None, pointer.split("/")):
            found = found[part]
        assert found


def test_every_message_is_sent_and_received() -> None:
    operations = document()["operations"].values()
    sent = [ref for o in operations if o["action"] == "send" for ref in _values_of("$ref", o["messages"])]
    received = [ref for o in operations if o["action"] == "receive" for ref in _values_of("$ref", o["messages"])]
    assert len(sent) == len(set(sent)) == len(KINDS) + len(report_policies()), "reports are on two topics"
    assert sorted(received) == sorted(sent), "what is decided is received by consumers"


# Settings


@pytest.fixture
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADGATE_")]:
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("_no_environment")
def test_the_reference_settings_load_and_change_nothing(folder: Path) -> None:
    assert load_settings(folder / generate.REFERENCE / "settings.yaml") == Settings()


@pytest.mark.usefixtures("_no_environment")
def test_what_is_commented_out_loads_without_its_comment_sign(folder: Path) -> None:
    once = folder / "once.yaml"
    once.write_text(_uncommented((folder / generate.REFERENCE / "settings.yaml").read_text()))
    settings = load_settings(once)
    assert settings.kafka is not None
    assert settings.clusters["payments"].kafka is not None
    throttle = settings.policy_settings()["throttle"]
    assert throttle.clusters.keys() == {"payments", "dev-*"}
    assert throttle.for_cluster("dev-1").mode.value == "shadow"


def test_every_setting_stands_in_the_reference(files: dict[str, str]) -> None:
    content: str = files[f"{generate.REFERENCE}/settings.yaml"]
    while (less := _uncommented(content)) != content:
        content = less
    assert set(_paths(yaml.safe_load(content))) >= set(_fields(Settings))


# Metrics


def test_every_metric_stands_on_the_page_with_its_labels(files: dict[str, str]) -> None:
    for part, families in parts().items():
        assert families, part
    for family in (family for families in parts().values() for family in families):
        assert family.help
        assert f"| `{family.name}` | {family.type} |" in files[f"{generate.REFERENCE}/metrics.md"]
    histograms = {row.name: row.labels for families in parts().values() for row in families if row.type == "histogram"}
    assert histograms["headgate_decision_latency_seconds"] == ("policy", "stage")


def test_no_part_that_has_metrics_is_forgotten() -> None:
    sources = [file for room in ("connectors", "deploy", "streaming") for file in (ROOT / room).rglob("*.py")]
    named = {name for file in sources for name in re.findall(r'"(headgate_[a-z_]+)"', file.read_text())}
    shown = {row.name for families in parts().values() for row in families}
    assert len(named) > 20
    # A worker's class has the beginning of its metrics' names.
    assert {name for name in named if not any(f"{each}_".startswith(f"{name}_") for each in shown)} == set()


def test_the_page_has_what_a_scrape_has() -> None:
    registry = CollectorRegistry()
    QueryHealth(registry, 60.0)
    scraped = {f"{m.name}_total" if m.type == "counter" else m.name for m in registry.collect()}
    assert {row.name for row in parts()["The query"]} == scraped


def _values_of(name: str, node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == name:
                yield value
            yield from _values_of(name, value)
    elif isinstance(node, list):
        for item in node:
            yield from _values_of(name, item)


def _uncommented(text: str) -> str:
    """Settings without one `#`; explanations, which have a space after it, stay."""
    return re.sub(r"^( *)#(?! \S)", r"\1", text, flags=re.MULTILINE)


def _paths(node: Any, *place: str) -> Iterator[tuple[str, ...]]:
    if isinstance(node, dict):
        for name, value in node.items():
            yield (*place, name)
            yield from _paths(value, *place, name)
    elif isinstance(node, list):
        for item in node:
            yield from _paths(item, *place)


def _fields(model: Any, *place: str) -> Iterator[tuple[str, ...]]:
    """Where each setting stands, with the clusters of the example."""
    example = "old" if place else "payments"
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute
        yield (*place, name)
        inner = next((kind for kind in classes_in(field.annotation) if issubclass(kind, BaseModel)), None)
        # What each entry of a list has, its comment says.
        if inner is not None and field.default != ():
            yield from _fields(inner, *place, name, *((example,) if name == "clusters" else ()))
