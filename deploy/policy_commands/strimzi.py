"""The command `headgate import-strimzi`: converts a broker's properties for the quotas plugin to Headgate settings.

It knows two generations of keys: the released plugin (0.3), and the draft with soft and hard limits. It refuses the
values that the plugin refuses (rule 13).
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from io import SEEK_END, StringIO
from typing import Any

import javaproperties
from pydantic import BaseModel, TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from connectors.kafka.connection import SaslMechanism
from deploy.settings.schema import suggest
from policies.throttle import ThrottleSettings
from policies.throttle.settings import QuotaSettings
from policies.units import UserError, format_duration

# The plugin's admin client as a Kafka connection of Headgate's settings.
#
# Java's properties name key stores, and one JAAS line for identity and password. Headgate reads PEM files, and
# secrets only from files or the environment: so a store has to be converted once, and no secret is printed.

_PROTOCOL, _MECHANISM, _JAAS = "security.protocol", "sasl.mechanism", "sasl.jaas.config"
_SERVERS, _HOSTNAMES, _TOKENS = (
    "bootstrap.servers", "ssl.endpoint.identification.algorithm", "sasl.oauthbearer.token.endpoint.url",
)  # fmt: skip
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OPTION = re.compile(r"""\b(\w+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'([^']*)'|([^\s;"']+))""")
_CONVERTED = ".pem"
"""Appended to the name of a key store for the PEM file that the operator makes of it."""
_USED = (_SERVERS, _PROTOCOL, "ssl.", "sasl.")
UNKNOWN_SERVERS = "CHANGE-ME:9092"


def import_connection(admin: Mapping[str, str]) -> dict[str, Any]:
    """Return the block `kafka` of a watched cluster, from the admin client's properties without their prefix."""
    servers = admin.get(_SERVERS, UNKNOWN_SERVERS).split(",")
    # Java's clients accept SASL_SSL://host:port.
    connection: dict[str, Any] = {"bootstrap_servers": ",".join(s.strip().rpartition("://")[2] for s in servers)}
    protocol = admin.get(_PROTOCOL, _PROTOCOLS[0]).upper()
    if protocol.endswith("SSL"):
        connection["tls"] = _import_tls(admin)
    if protocol.startswith("SASL"):
        connection["sasl"] = _import_sasl(admin)
    return connection


def find_connection_mistakes(admin: Mapping[str, str]) -> Iterator[str]:
    """Yield what Headgate's client cannot do: a protocol or a mechanism that it does not have."""
    protocol = admin.get(_PROTOCOL, _PROTOCOLS[0]).upper()
    if protocol not in _PROTOCOLS:
        yield f"kafka.admin.{_PROTOCOL}={protocol}: must be one of {', '.join(_PROTOCOLS)}"
    mechanism = admin.get(_MECHANISM, "GSSAPI")  # Kafka's default
    if protocol.startswith("SASL") and mechanism not in list(SaslMechanism):
        yield (
            f"kafka.admin.{_MECHANISM}={mechanism}: only {', '.join(SaslMechanism)} is imported; create a user with "
            "one of these and name that here, or leave it out and set kafka.properties (docs/managed-kafka.md)"
        )


def explain_connection(admin: Mapping[str, str], environment: str) -> Iterator[str]:
    """Yield what the operator must do before the connection works; `environment` is the variable of its block."""
    if _SERVERS not in admin:
        yield f"{_SERVERS} of the admin client is not set: name the brokers of the watched cluster."
    block = import_connection(admin)
    tls, sasl = block.get("tls"), block.get("sasl")
    if tls is None and any(key.startswith("ssl.") for key in admin):
        yield f"The admin client's ssl.* keys are left out: without {_PROTOCOL}=SSL or SASL_SSL Kafka ignores them."
    if tls is not None:
        yield from _explain_stores(admin)
        if "key_file" in tls:
            variable = f"{environment}__TLS__KEY_PASSWORD"
            yield f"The password of the client's key is left out: if there is one, set {variable}."
    if sasl is not None:
        field = "client_secret" if sasl["mechanism"] == SaslMechanism.OAUTHBEARER else "password"
        yield f"The {field} of {_JAAS} is left out: set {environment}__SASL__{field.upper()}, or sasl.{field}_file."
    for key in sorted(admin):
        if not key.startswith(_USED):
            yield f"kafka.admin.{key}: left out; Headgate's client has no such setting."


def _import_tls(admin: Mapping[str, str]) -> dict[str, Any]:
    tls: dict[str, Any] = {}
    if authorities := _find_pem(admin, "truststore", "certificates"):
        tls["ca_file"] = authorities
    if identity := _find_pem(admin, "keystore", "key"):
        tls |= {"cert_file": identity, "key_file": identity}  # Java's PEM store holds both
    if admin.get(_HOSTNAMES, "https") == "":
        tls["verify_hostname"] = False
    return tls


def _find_pem(admin: Mapping[str, str], store: str, inline: str) -> str | None:
    """Return the PEM file of a store: itself, or the name for the converted one."""
    location = admin.get(f"ssl.{store}.location")
    if location is not None:
        return location if admin.get(f"ssl.{store}.type", "").upper() == "PEM" else location + _CONVERTED
    return f"CHANGE-ME-{store}{_CONVERTED}" if f"ssl.{store}.{inline}" in admin else None


def _explain_stores(admin: Mapping[str, str]) -> Iterator[str]:
    for store, inline in (("truststore", "certificates"), ("keystore", "key")):
        location = admin.get(f"ssl.{store}.location")
        pem = _find_pem(admin, store, inline)
        if location is None and pem is not None:
            yield f"ssl.{store}.{inline} holds PEM text: write it into a file, and name that in place of {pem}."
        elif location is not None and pem != location:
            convert = f"keytool -list -rfc -keystore {location} > {pem}"
            if store == "keystore":
                convert = f"openssl pkcs12 -in {location} -out {pem} (a JKS store first: keytool -importkeystore)"
            yield f"Headgate reads PEM: convert the {store} with {convert}."


def _import_sasl(admin: Mapping[str, str]) -> dict[str, Any]:
    options = {
        name: re.sub(r"\\(.)", r"\1", double) or single or bare
        for name, double, single, bare in _OPTION.findall(admin.get(_JAAS, ""))
    }
    mechanism = admin.get(_MECHANISM, "")
    if mechanism == SaslMechanism.OAUTHBEARER:
        options |= {"token_endpoint": admin[_TOKENS]} if _TOKENS in admin else {}
        fields = {"client_id": "clientId", "scope": "scope", "token_endpoint": "token_endpoint"}
    else:
        fields = {"username": "username"}
    return {"mechanism": mechanism, **{field: options[name] for field, name in fields.items() if name in options}}


# A Kafka resource of Strimzi as the broker properties that Strimzi's operator makes of it.
#
# Since Strimzi 0.42, `spec.kafka.quotas` is the only place of the quotas plugin; before, it was `spec.kafka.config`.

_QUOTAS = {
    # field of spec.kafka.quotas: the plugin's key
    "producerByteRate": "produce",
    "consumerByteRate": "fetch",
    "minAvailableBytesPerVolume": "storage.per.volume.limit.min.available.bytes",
    "minAvailableRatioPerVolume": "storage.per.volume.limit.min.available.ratio",
    "excludedPrincipals": "excluded.principal.name.list",
}


def find_kafka_resource(text: str) -> Mapping[str, Any] | None:
    """Return `spec.kafka` of the first Kafka resource of a YAML or JSON text, also in a `List`; None if it has none."""
    try:
        documents = list(YAML(typ="safe", pure=True).load_all(text))
    except YAMLError:
        return None
    resources = [each for document in documents if isinstance(document, dict) for each in _items(document)]
    found = next((each for each in resources if each.get("kind") == "Kafka"), None)
    spec = None if found is None else found.get("spec")
    kafka = spec.get("kafka") if isinstance(spec, dict) else None
    return None if found is None else kafka if isinstance(kafka, dict) else {}


def _items(document: dict[str, Any]) -> list[dict[str, Any]]:
    items = document.get("items")
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else [document]


def read_kafka_resource(kafka: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Return the broker properties of a resource's `spec.kafka`, the plugin's keys with their prefix.

    Raises ValueError if its quotas are not the plugin's, or have an unknown field.
    """
    config, quotas = kafka.get("config") or {}, kafka.get("quotas") or {}
    properties = {str(key): _write(value) for key, value in config.items()} if isinstance(config, dict) else {}
    if not isinstance(quotas, dict) or not quotas:
        return properties
    if quotas.get("type") != "strimzi":
        raise ValueError(
            f"spec.kafka.quotas.type: {quotas.get('type')} is not the plugin, which is `strimzi`; Kafka's own default "
            "quotas limit no disk, so there is nothing to import"
        )
    for name, value in quotas.items():
        if name in _QUOTAS:
            properties[prefix + _QUOTAS[name]] = _write(value)
        elif name != "type":
            raise ValueError(f"spec.kafka.quotas.{name}: no field of the plugin{suggest(str(name), _QUOTAS)}")
    return properties


def _write(value: Any) -> str:
    return ";".join(map(str, value)) if isinstance(value, list) else str(value)


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
        text = StringIO(comments)
        text.seek(0, SEEK_END)
        YAML().dump(self.settings, text)
        return text.getvalue()


def import_properties(content: bytes, place: str) -> Imported:
    """Convert a broker's properties, or a Kafka resource of Strimzi: UTF-8, or otherwise Latin-1 as Java reads it.

    Raises UserError if they do not configure the plugin, or the plugin itself would refuse them.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    resource = find_kafka_resource(text)
    try:
        properties = javaproperties.loads(text) if resource is None else read_kafka_resource(resource, _PLUGIN)
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    plugin, admin = _split(properties)
    if not plugin:
        where = f"no key begins with {_PLUGIN}" if resource is None else "it has neither quotas nor the plugin's keys"
        raise UserError(f"{place}: {where}: the quotas plugin is not configured there")
    mistakes = [*_refuse_keys(plugin), *find_connection_mistakes(admin)]
    throttle = {} if mistakes else _throttle(plugin)
    mistakes += [*_refuse_source(plugin), *_refuse_settings(ThrottleSettings, throttle)]
    cluster: dict[str, Any] = {"kafka": {**import_connection(admin), "poll_interval": _read_interval(plugin)}}
    if excluded := _list_excluded(plugin):
        # `produce` is the base of the default client id if it can be one; else its existing quota is the base.
        rate, lowest = _number(plugin.get(_PRODUCE, "")), QuotaSettings.model_fields["floor_bytes_per_second"].default
        base = {"base": int(rate)} if rate is not None and lowest <= rate <= _HIGHEST_RATE else {}
        cluster["quotas"] = {"entities": [{"client_id": "default", **base}], "exclude": excluded}
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


def _refuse_keys(plugin: Mapping[str, str]) -> Iterator[str]:
    """Yield unknown keys that look like a limit, without which nothing would ever be stopped, and wrong values."""
    for key in sorted(plugin.keys() - _KNOWN):
        if key.startswith(_LIMITING):
            yield f"{_PLUGIN}{key}: no key of the plugin{suggest(key, _KNOWN)}; mend it, or take it out"
    for limit in ("hard", "soft"):
        given = [key for key, (which, _) in _LIMITS.items() if which == limit and key in plugin]
        if len(given) > 1:
            yield f"more than one {limit} limit: {_PLUGIN}{f' and {_PLUGIN}'.join(given)}; keep one"
    for key in (*_LIMITS, *_FALLBACK):
        if key in plugin and _number(plugin[key]) is None:
            yield f"{_PLUGIN}{key}={plugin[key]}: must be a number"
    if not plugin.get(_INTERVAL, "60").isdecimal():
        unit = "milliseconds" if _is_draft(plugin) else "seconds"
        yield f"{_PLUGIN}{_INTERVAL}={plugin[_INTERVAL]}: must be a whole number of {unit}"
    with suppress(ValidationError):
        if _VALIDITY not in plugin or _ISO_DURATION.validate_python(plugin[_VALIDITY]) > timedelta(0):
            return
    yield f"{_PLUGIN}{_VALIDITY}={plugin[_VALIDITY]}: must be an ISO 8601 duration such as PT5M"


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
