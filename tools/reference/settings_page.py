"""docs/reference/settings.yaml: every setting with its meaning, type and default.

Uncommented lines are the defaults, so the file loads as it is. ``#name: value`` is an example of a setting without a
default (or of a block that is off): remove the ``#`` to use it. ``# text`` explains.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Annotated, Any, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from deploy.settings.application import Settings
from tools.reference.catalogue import Row, classes_in, rows, schema_of

_INTRODUCTION = """\
# Every setting of Headgate. `make generate` writes it from the models in the code; `make check` fails when it is stale.
#
# All uncommented lines are defaults, so this file loads as it is and changes nothing: keep only the lines that you
# change. A line `#name: value` is an example of a setting without a default, or of a block that is off: remove the `#`
# to use it. Unknown names are mistakes; `headgate check FILE` lists every mistake with its line.
#
# Durations are written 30s, 5m, 1h30m or 250ms; sizes 5GB, 5GiB or plain bytes.
#
# The environment overrides the file: HEADGATE_ and the path in capitals, with two underscores between its parts, such
# as HEADGATE_HTTP__PORT. So the file need not contain secrets: HEADGATE_KAFKA__SASL__PASSWORD.
"""

_EXAMPLE: dict[str, Any] = yaml.safe_load("""\
data_dir: /var/lib/headgate
jars_dir: /var/cache/headgate/jars
kafka: {bootstrap_servers: "loop-1:9092,loop-2:9092"}
clusters:
  payments:
    kafka: {bootstrap_servers: "kafka-1:9092,kafka-2:9092"}
    zookeeper: {servers: "zk-1:2181,zk-2:2181,zk-3:2181"}
    pulsar: {admin_url: "https://pulsar.example.org:8443"}
    quotas: {entities: [{client_id: default, base: 10MB}]}
    publish: {by: namespace, base: 20MB}
    pulsar_bookies: {bookie_url: "http://bookies.example.org:8000"}
    bookie_disks: {bookie_url: "http://bookie.example.org:8000"}
    sessions: {servers: ["zk-1:2181", "zk-2:2181", "zk-3:2181"], admin_url: "http://{host}:8080"}
    bookkeeper: {clusters: {old: {}, new: {zookeeper: {servers: "zk-9:2181"}}}, bootstrap: old, active: old}
    switching: {replication: {ensemble_size: 3, write_quorum: 2, ack_quorum: 2}}
policies:
  throttle:
    preset: strimzi
    hard: {available_bytes_below: 5GB}
    soft: {available_ratio_below: 0.15}
    clusters: {payments: {min_hold: 2m}, "dev-*": {mode: shadow, fallback_factor: 0.5}}
  bookie_disks: {clusters: {"dev-*": {mode: shadow}}}
  isolation: {clusters: {messaging: {quarantine: "on", max_quarantined: 5}}}
  sessions:
    wait_for_deletion: 30s
    shutdown_delay: 15s
    clusters: {messaging: {ownership_rules: current}}
  switching:
    strategies: {schema: remap}
    clusters: {messaging: {target_policy: shared, cleanup_after: 30d}}
stream:
  checkpoint_dir: /var/lib/headgate/checkpoint
  spark: {spark.executor.memory: 1g}
  kafka: {metadata.max.age.ms: "60000"}
topics: {replication_factor: 3}
alertmanager: {urls: ["http://alertmanager-0:9093", "http://alertmanager-1:9093"]}
""")
"""Example values for settings without a default."""

_STAND_INS: Mapping[str, Any] = {
    "true or false": True,
    "duration": "5s",
    "path": "/path/to/file",
    "secret": "change-me",
    "text": "name",
    "size": "5GB",
    "number from 0 to 1": 0.05,
    "whole number from 0 to 65535": 9409,
}
"""Example values by type, of settings that are not in the example."""


def settings_page() -> str:
    """Return the whole file."""
    return "\n".join([_INTRODUCTION, *_block(Settings, _EXAMPLE)]).rstrip() + "\n"


def _block(model: type[BaseModel], example: Mapping[str, Any], *, off: bool = False) -> Iterator[str]:
    """Return the fields of a block, each after its description; `off`: the block itself is commented out."""
    after_block = False
    for row, field in zip(rows(schema_of(model), nested=False), model.model_fields.values(), strict=True):
        lines = _setting(row, field, example.get(row.name), off=off)
        is_block = len(lines) > 1
        if after_block or is_block:
            yield ""
        yield from [f"# {line}" for line in textwrap.wrap(_meaning(row, field), 100)]
        yield from lines
        after_block = is_block


def _setting(row: Row, field: FieldInfo, example: Any, *, off: bool) -> list[str]:
    """Return one setting without its description: a line, or a block of lines."""
    default, inner = _default(field), _model_in(field.annotation)
    if isinstance(default, BaseModel) and default.model_fields_set:
        chosen = default.model_dump(mode="json", exclude_unset=True)
        # The alternatives to the chosen values stay out when a reader takes away one comment sign everywhere.
        return _named(row.name, [re.sub("^#(?! )", "##", line) for line in _block(type(default), chosen, off=True)])
    if isinstance(default, BaseModel):
        return _named(row.name, _block(type(default), example or {}))
    if default == {} or get_origin(field.annotation) is dict:
        # A map without an example is shown empty, as it is by default.
        entries = [line for name, entry in (example or {}).items() for line in _entry(inner, name, entry)]
        lines = _named(row.name, entries) if example else [f"{row.name}: {{}}"]
        return lines if field.is_required() else [f"#{line}" for line in lines if line]
    if default is not None:
        return [f"{row.name}: {_scalar(_format_default(default, row.type, field))}"]
    shown = field.is_required() or (off and example is not None)
    if inner is not None:
        lines = _named(row.name, _block(inner, example or {}, off=True))
    else:
        choice = re.match(r"(?:one of )?`([^`]+)`", row.type)
        if example is None:
            example = choice[1] if choice else _STAND_INS[row.type.removesuffix(" or null")]
        lines = [f"{row.name}: {_scalar(example)}"]
    return lines if shown else [f"#{line}" for line in lines if line]


def _entry(model: type[BaseModel] | None, name: str, entry: Any) -> list[str]:
    """Return an entry of a map, with the settings of its block explained if it has a model."""
    plain = yaml.safe_dump({name: entry}, sort_keys=False).splitlines()
    return plain if model is None else _named(name, _block(model, entry, off=True))


def _default(field: FieldInfo) -> Any:
    """Return the default of this version; None without one, or if it depends on the machine."""
    # The factory of a block is its class, that of a map is `dict`.
    depends = isinstance(field.default_factory, FunctionType)
    value = None if depends else field.get_default(call_default_factory=True, validated_data={})
    return None if value is PydanticUndefined else value


def _meaning(row: Row, field: FieldInfo) -> str:
    """Return a setting's description and type; for a block only the description."""
    parts = [row.meaning] if row.meaning else []
    inner = _model_in(field.annotation)
    if inner is not None and _default(field) == ():
        fields = (f"{name}: {each.description}" for name, each in inner.model_fields.items())
        parts.append(f"Each has {' '.join(fields)}")
    if inner is None and _default(field) != {}:
        kind = row.type.removesuffix(" or null").replace("`", "")
        parts.append(f"({'needed; ' if field.is_required() else ''}{kind})")
    return " ".join(parts)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model of the block that a field is, may be, or maps names to."""
    return next((kind for kind in classes_in(annotation) if issubclass(kind, BaseModel)), None)


def _format_default(value: Any, kind: str, field: FieldInfo) -> Any:
    """Format a default as a person would write it."""
    if kind == "size":
        units = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
        return next((f"{value // size}{unit}" for unit, size in units if value and value % size == 0), str(int(value)))
    declared: Any = Annotated[field.annotation, field]
    return TypeAdapter(declared).dump_python(value, mode="json")


def _scalar(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("\n...")


def _named(name: str, block: Iterable[str]) -> list[str]:
    """Return the lines of a block below its name, without an empty first one."""
    first, *others = (f"  {line}" if line else "" for line in block)
    return [f"{name}:", *([first] if first else []), *others]
