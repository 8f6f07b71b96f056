"""The command `headgate import-strimzi`: converts a broker's properties for the quotas plugin to Headgate settings.

It knows two generations of keys: the released plugin (0.3) and the draft with soft and hard limits. It refuses the same
values as the plugin.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import javaproperties
import yaml
from pydantic import TypeAdapter, ValidationError

from policies.errors import UserError
from policies.throttle import ThrottleSettings
from policies.units import format_duration

_PLUGIN = "client.quota.callback.static."
_CLASS = "client.quota.callback.class"
_CLUSTER = "imported"
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
_SERVERS = "kafka.admin.bootstrap.servers"
_SOURCE = "storage.volume.source"

_WITHOUT_COUNTERPART = {
    "produce": "a total for all clients; Kafka's own quotas are per client: configure `quotas` with a base each",
    "fetch": "Headgate does not limit consumers",
    "request": "Headgate does not limit request time",
    "excluded.principal.name.list": "name these under `quotas.exclude` when you configure the quota actuator",
}


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
        content: of a server.properties: UTF-8, or otherwise Latin-1 as Java reads it.
        place: the name of the file, for messages.

    Raises:
        UserError: the properties do not configure the plugin, or the plugin itself would refuse them.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    try:
        properties = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError as error:
        raise UserError(f"{place}: {error.escape} is no character: \\u takes four hexadecimal digits") from None
    plugin = {key.removeprefix(_PLUGIN): value.strip() for key, value in properties.items() if key.startswith(_PLUGIN)}
    if not plugin:
        raise UserError(f"{place}: no key begins with {_PLUGIN}: the quotas plugin is not configured there")
    mistakes = list(_refusals(plugin))
    if mistakes:
        raise UserError("\n".join(f"{place}: {mistake}" for mistake in mistakes))
    throttle = _throttle(plugin, place)
    servers = plugin.get(_SERVERS, "CHANGE-ME:9092")
    # 0 switches the plugin's check off; an interval of Headgate's cannot do that.
    kafka = {"bootstrap_servers": servers, "poll_interval": f"{int(plugin.get(_INTERVAL, '60')) or 60}s"}
    settings = {
        "kafka": {"bootstrap_servers": servers},
        "clusters": {_CLUSTER: {"kafka": kafka}},
        "policies": {"throttle": throttle},
    }
    return Imported(settings, list(_notes(properties, plugin)))


def _throttle(plugin: Mapping[str, str], place: str) -> dict[str, Any]:
    block: dict[str, Any] = {"preset": "strimzi"}
    for key, (limit, kind) in _LIMITS.items():
        if key in plugin:
            block[limit] = {kind: _number(plugin[key])}
    for key in _FALLBACK:
        if key in plugin:
            block["fallback_factor"] = _number(plugin[key])
    if _VALIDITY in plugin:
        block["validity"] = format_duration(_ISO_DURATION.validate_python(plugin[_VALIDITY]))
    try:
        ThrottleSettings.model_validate(block)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{place}: {'.'.join(map(str, first['loc'])) or 'limits'}: {message}") from None
    return block


def _refusals(plugin: Mapping[str, str]) -> Iterator[str]:
    """Yield the mistakes that the plugin refuses, in both generations."""
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
        yield f"{_PLUGIN}{_INTERVAL}={plugin[_INTERVAL]}: must be a whole number of seconds"
    if _VALIDITY in plugin and not _is_positive_duration(plugin[_VALIDITY]):
        yield f"{_PLUGIN}{_VALIDITY}={plugin[_VALIDITY]}: must be an ISO 8601 duration such as PT5M"
    if plugin.get(_SOURCE, "cluster").lower() == "local" and any(key in plugin for key in _LIMITS):
        yield f"{_PLUGIN}{_SOURCE}=local allows no per-volume limit: each broker would see only its own volumes"


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
    if _SERVERS not in plugin:
        yield f"{_PLUGIN}{_SERVERS} is not set: name the brokers, and the loop's own Kafka."
    if plugin.get(_INTERVAL) == "0":
        yield "The plugin's check was switched off (check-interval 0); Headgate reads every 60s."
    for key, reason in _WITHOUT_COUNTERPART.items():
        if key in plugin:
            yield f"{_PLUGIN}{key}={plugin[key]}: no counterpart here: {reason}."
    known = {*_LIMITS, *_FALLBACK, _VALIDITY, _INTERVAL, _SERVERS, _SOURCE, *_WITHOUT_COUNTERPART}
    for key in sorted(plugin.keys() - known):
        if not key.startswith("kafka.admin."):
            yield f"{_PLUGIN}{key}: unknown, left out."
