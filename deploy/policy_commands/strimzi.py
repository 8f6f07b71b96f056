"""The command `headgate import-strimzi`: converts a broker's properties for the quotas plugin to Headgate settings.

It knows two generations of keys: the released plugin (0.3), and the draft with soft and hard limits. It refuses the
values that the plugin refuses (rule 13).
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import javaproperties
import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from deploy.checking.suggestions import suggest
from deploy.policy_commands.strimzi_connection import (
    UNKNOWN_SERVERS,
    explain_connection,
    find_connection_mistakes,
    import_connection,
)
from deploy.policy_commands.strimzi_resource import find_kafka_resource, read_kafka_resource
from policies.errors import UserError
from policies.throttle import ThrottleSettings
from policies.throttle.quota_settings import QuotaSettings
from policies.units import format_duration

_PLUGIN = "client.quota.callback.static."
_ADMIN = ("client.quota.callback.kafka.admin.", f"{_PLUGIN}kafka.admin.")
"""Prefixes of the admin client's keys: those of the draft, and those of the released plugin, which win."""
_CLASS = "client.quota.callback.class"
_CLUSTER = "imported"
_HIGHEST_RATE = 2**53
_ISO_DURATION: TypeAdapter[timedelta] = TypeAdapter(timedelta)

_LIMITS = {
    # key after the prefix: (which limit, Headgate's kind)
    "storage.per.volume.limit.min.available.bytes": ("hard", "available_bytes_below"),
    "storage.per.volume.limit.min.available.ratio": ("hard", "available_ratio_below"),
    "storage.perVolumeLimit.availableBytesBelow.hard": ("hard", "available_bytes_below"),
    "storage.perVolumeLimit.availableRatioBelow.hard": ("hard", "available_ratio_below"),
    "storage.perVolumeLimit.availableBytesBelow.soft": ("soft", "available_bytes_below"),
    "storage.perVolumeLimit.availableRatioBelow.soft": ("soft", "available_ratio_below"),
}
_FALLBACK = ("throttle.factor.fallback", "fallback.throttle.factor")
_VALIDITY = "throttle.factor.validity.duration"
_INTERVAL = "storage.check-interval"
_SOURCE = "storage.volume.source"
_EXCLUDED = "excluded.principal.name.list"
_PRODUCE = "produce"
_PRINCIPAL = re.compile(r"\s*,\s*(?=User:)")
"""Between two principals that a comma separates. Behind `User:`, any other comma belongs to the name."""
_USED_BYTES = ("storage.soft", "storage.hard")
_OF_DRAFT = (_SOURCE, "fallback.throttle.factor", "storage.perVolumeLimit.")
_OF_RELEASE = ("storage.per.volume.limit.", "throttle.factor.")
_ENVIRONMENT = f"HEADGATE_CLUSTERS__{_CLUSTER.upper()}__KAFKA"
_LOOP_KAFKA = (
    "kafka: name the Kafka for the loop's own topics. It should be another cluster than the watched one: a cluster "
    "with full disks, or with stopped producers, accepts no decision to start them again."
)

_WITHOUT_COUNTERPART = {
    _PRODUCE: "a total for all clients of a broker; Kafka's own quotas are per client: divide it among the `base` of "
    "`quotas.entities`",
    "fetch": "Headgate does not limit consumers",
    "request": "Headgate does not limit request time",
    **dict.fromkeys(_USED_BYTES, "it limits a broker's used bytes; set `hard` and `soft` to free bytes or a share"),
}

_KNOWN = frozenset(
    (*_LIMITS, *_FALLBACK, _VALIDITY, _INTERVAL, _SOURCE, _EXCLUDED, "kafka.clientIdPrefix", *_WITHOUT_COUNTERPART)
)
_LIMITING = ("storage.", "throttle.", "fallback.")
"""The beginnings of keys that limit something."""


@dataclass
class Imported:
    """Settings for Headgate, and notes on them for the operator."""

    settings: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    def as_yaml(self) -> str:
        """Return a settings file with the notes as comments."""
        # A value of the input may contain a line break, and no part of it may become a setting.
        comments = "".join(f"# {' '.join(note.splitlines())}\n" for note in self.notes)
        return comments + yaml.safe_dump(self.settings, sort_keys=False)


def import_properties(content: bytes, place: str) -> Imported:
    """Convert a broker's properties.

    Args:
        content: a server.properties, or a Kafka resource of Strimzi: UTF-8, or otherwise Latin-1 as Java reads it.
        place: the name of the file, for messages.

    Raises:
        UserError: the properties do not configure the plugin, or the plugin itself would refuse them.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    resource = find_kafka_resource(text)
    try:
        properties = javaproperties.loads(text) if resource is None else read_kafka_resource(resource, _PLUGIN)
    except javaproperties.InvalidUEscapeError as error:
        raise UserError(f"{place}: {error.escape} is no character: \\u takes four hexadecimal digits") from None
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    plugin, admin = _split(properties)
    if not plugin:
        where = f"no key begins with {_PLUGIN}" if resource is None else "it has neither quotas nor the plugin's keys"
        raise UserError(f"{place}: {where}: the quotas plugin is not configured there")
    mistakes = [*_refuse_unknown(plugin), *_refuse_values(plugin), *find_connection_mistakes(admin)]
    throttle = {} if mistakes else _throttle(plugin)
    mistakes += [*_refuse_source(plugin), *_refuse_settings(ThrottleSettings, throttle)]
    cluster: dict[str, Any] = {"kafka": {**import_connection(admin), "poll_interval": _read_interval(plugin)}}
    if excluded := _list_excluded(plugin):
        cluster["quotas"] = {"entities": [{"client_id": "default", **_read_base(plugin)}], "exclude": excluded}
        mistakes += _refuse_settings(QuotaSettings, cluster["quotas"])
    if mistakes:
        raise UserError("\n".join(f"{place}: {mistake}" for mistake in mistakes))
    settings = {
        "kafka": {"bootstrap_servers": UNKNOWN_SERVERS},
        "clusters": {_CLUSTER: cluster},
        "policies": {"throttle": throttle},
    }
    return Imported(settings, [*_notes(properties, plugin), *explain_connection(admin, _ENVIRONMENT)])


def _split(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the plugin's keys, and those of its admin client, each without the prefix."""
    admin: dict[str, str] = {}
    for prefix in _ADMIN:
        admin |= {
            key.removeprefix(prefix): value.strip() for key, value in properties.items() if key.startswith(prefix)
        }
    own = {key: value.strip() for key, value in properties.items() if not key.startswith(_ADMIN)}
    return {key.removeprefix(_PLUGIN): value for key, value in own.items() if key.startswith(_PLUGIN)}, admin


def _is_draft(plugin: Mapping[str, str]) -> bool:
    """Whether the keys are the draft's. If both generations are there, the released plugin is the one that runs."""
    return any(key.startswith(_OF_DRAFT) for key in plugin) and not any(key.startswith(_OF_RELEASE) for key in plugin)


def _read_interval(plugin: Mapping[str, str]) -> str:
    """Return the polling interval: milliseconds in the draft, seconds in the released plugin; by default 60 s."""
    count = plugin.get(_INTERVAL, "0")
    unit = timedelta(milliseconds=1) if _is_draft(plugin) else timedelta(seconds=1)
    # 0 switches the plugin's check off; an interval of Headgate's cannot do that.
    return format_duration(int(count) * unit or timedelta(seconds=60)) if count.isdecimal() else ""


def _list_excluded(plugin: Mapping[str, str]) -> list[str]:
    """Return the excluded principals.

    The plugin separates them by semicolons, as distinguished names have commas. Plugin 0.2 separated bare names by
    commas; there are such only if the list has neither a semicolon nor `User:`, nor a distinguished name's `=`.
    """
    listed = plugin.get(_EXCLUDED, "")
    is_bare = not any(mark in listed for mark in (";", "User:", "="))
    names = listed.split(",") if is_bare else [n for part in listed.split(";") for n in _PRINCIPAL.split(part)]
    return [name.strip().removeprefix("User:") for name in names if name.strip()]


def _read_base(plugin: Mapping[str, str]) -> dict[str, int]:
    """Return the base of the default client id, if `produce` can be one; else its existing quota is the base."""
    rate = _number(plugin.get(_PRODUCE, ""))
    lowest = QuotaSettings.model_fields["floor_bytes_per_second"].default
    return {"base": int(rate)} if rate is not None and lowest <= rate <= _HIGHEST_RATE else {}


def _throttle(plugin: Mapping[str, str]) -> dict[str, Any]:
    block: dict[str, Any] = {"preset": "strimzi"}
    for key, (limit, kind) in _LIMITS.items():
        if key in plugin:
            block[limit] = {kind: _number(plugin[key])}
    for key in _FALLBACK:
        if key in plugin:
            block["fallback_factor"] = _number(plugin[key])
    if _VALIDITY in plugin:
        block["validity"] = format_duration(_ISO_DURATION.validate_python(plugin[_VALIDITY]))
    return block


def _refuse_settings(model: type[BaseModel], block: Mapping[str, Any]) -> Iterator[str]:
    try:
        model.model_validate(block)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            yield f"{'.'.join(map(str, each['loc'])) or 'limits'}: {each['msg'].removeprefix('Value error, ')}"


def _refuse_source(plugin: Mapping[str, str]) -> Iterator[str]:
    """Yield contradictions between the source of volumes and the kind of limits."""
    source = plugin.get(_SOURCE, "local" if _is_draft(plugin) else "").lower()
    if source not in ("local", "cluster", ""):
        yield f"{_PLUGIN}{_SOURCE}={plugin[_SOURCE]}: must be local or cluster"
    if source == "local" and any(key in plugin for key in _LIMITS):
        given = "" if _SOURCE in plugin else " (the draft's default, because it is not set)"
        yield (
            f"{_PLUGIN}{_SOURCE}=local{given} allows no per-volume limit: each broker would see only its own volumes; "
            "set it to cluster"
        )
    for key in _USED_BYTES:
        if source == "cluster" and key in plugin:
            yield f"{_PLUGIN}{key} is refused with {_SOURCE}=cluster: use a per-volume limit"


def _refuse_values(plugin: Mapping[str, str]) -> Iterator[str]:
    """Yield the values that the plugin refuses, in both generations."""
    for limit in ("hard", "soft"):
        given = [key for key, (which, _) in _LIMITS.items() if which == limit and key in plugin]
        if len(given) > 1:
            yield f"more than one {limit} limit: {_PLUGIN}{f' and {_PLUGIN}'.join(given)}; keep one"
    for key, (_, kind) in _LIMITS.items():
        if key in plugin:
            yield from _refuse_number(key, plugin[key], None if kind == "available_bytes_below" else 1.0)
    for key in _FALLBACK:
        if key in plugin:
            yield from _refuse_number(key, plugin[key], 1.0)
    if not plugin.get(_INTERVAL, "60").isdecimal():
        unit = "milliseconds" if _is_draft(plugin) else "seconds"
        yield f"{_PLUGIN}{_INTERVAL}={plugin[_INTERVAL]}: must be a whole number of {unit}"
    if _VALIDITY in plugin and not _is_positive_duration(plugin[_VALIDITY]):
        yield f"{_PLUGIN}{_VALIDITY}={plugin[_VALIDITY]}: must be an ISO 8601 duration such as PT5M"


def _refuse_unknown(plugin: Mapping[str, str]) -> Iterator[str]:
    """Yield unknown keys that look like a limit: without it, nothing would ever be stopped."""
    for key in sorted(plugin.keys() - _KNOWN):
        if key.startswith(_LIMITING):
            yield f"{_PLUGIN}{key}: no key of the plugin{suggest(key, _KNOWN)}; mend it, or take it out"


def _refuse_number(key: str, value: str, most: float | None) -> Iterator[str]:
    number = _number(value)
    if number is None or math.isnan(number) or number < 0 or (most is not None and number > most):
        most_text = "" if most is None else f" and at most {most:g}"
        yield f"{_PLUGIN}{key}={value}: must be a number, at least 0{most_text}"


def _is_positive_duration(text: str) -> bool:
    try:
        return _ISO_DURATION.validate_python(text) > timedelta(0)
    except ValidationError:
        return False


def _number(value: str) -> float | int | None:
    try:
        return int(value) if value.lstrip("-").isdecimal() else float(value)
    except ValueError:
        return None


def _notes(properties: Mapping[str, str], plugin: Mapping[str, str]) -> Iterator[str]:
    yield "Imported from the Strimzi quotas plugin. Remove `preset: strimzi` to add holds and margins."
    if properties.get(_CLASS):
        yield f"Remove {_CLASS} from the brokers before quotas are applied: with it, Kafka ignores its own quotas."
    yield _LOOP_KAFKA
    if _list_excluded(plugin):
        yield (
            f"{_EXCLUDED} became `quotas.exclude`, so Headgate carries decisions out with Kafka's quotas. Give each of "
            "these users a quota of its own (without one it has no limit during a throttle), and each of the other "
            "clients a `base` that holds at factor 1.0."
        )
    else:
        yield f"Headgate publishes decisions only: add `quotas` to clusters.{_CLUSTER} to have them carried out."
    if plugin.get(_INTERVAL) == "0":
        yield "The plugin's check was switched off (check-interval 0); Headgate reads every 60s."
    for key, reason in _WITHOUT_COUNTERPART.items():
        if key in plugin:
            yield f"{_PLUGIN}{key}={plugin[key]}: no counterpart here: {reason}."
    for key in sorted(plugin.keys() - _KNOWN):
        yield f"{_PLUGIN}{key}: unknown, left out."
