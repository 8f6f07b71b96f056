"""Properties that the settings pass on to Kafka's clients, by the clients' own names.

A name with dots is librdkafka's; kafka-python and the query's Java client get it, too, where they have the name. A name
with underscores is kafka-python's alone. The Java client's own names belong to the setting `stream.kafka`.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka.net.manager import KafkaConnectionManager
from pydantic import SecretStr

from connectors.redaction import remember_secret, without_secrets
from policies.units import AS_TEXT

Properties = dict[str, Annotated[SecretStr, AS_TEXT]]
"""No value is shown anywhere, because each name may hold a secret."""

SECRET_NAME = re.compile(r"password|passphrase|secret|jaas|oauthbearer\.config|\.pem$")

_OF_OUR_CLIENTS = """
client.id group.id group.instance.id group.protocol group.remote.assignor partition.assignment.strategy
session.timeout.ms heartbeat.interval.ms max.poll.interval.ms socket.timeout.ms enable.auto.commit auto.commit.enable
auto.commit.interval.ms enable.auto.offset.store auto.offset.reset enable.partition.eof isolation.level
allow.auto.create.topics acks request.required.acks enable.idempotence enable.gapless.guarantee transactional.id
max.in.flight max.in.flight.requests.per.connection message.send.max.retries retries compression.type compression.codec
linger.ms queue.buffering.max.ms queue.buffering.max.messages queue.buffering.max.kbytes delivery.timeout.ms
message.timeout.ms message.max.bytes reconnect.backoff.max.ms
""".split()  # noqa: SIM905 - forty lines of quotes would hide the names
"""What a client of Headgate sets: identity, groups and positions, and the durability and size of records."""

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(_OF_OUR_CLIENTS, "is set by Headgate, whose guarantees rest on it: leave it out"),
        # What needs another form in each client.
        **dict.fromkeys(("bootstrap.servers", "metadata.broker.list"), "set bootstrap_servers beside `properties`"),
        **dict.fromkeys(("ssl.ca.location", "ssl.ca.pem"), "set tls.ca_file, for all clients"),
        **dict.fromkeys(("ssl.certificate.location", "ssl.certificate.pem"), "set tls.cert_file, for all clients"),
        **dict.fromkeys(("ssl.key.location", "ssl.key.pem"), "set tls.key_file, for all clients"),
        "ssl.key.password": "set tls.key_password_file, for all clients",
        "ssl.endpoint.identification.algorithm": "set tls.verify_hostname, for all clients",
        "enable.ssl.certificate.verification": "name the authority in tls.ca_file: no client trusts everybody",
        "sasl.mechanisms": "write sasl.mechanism",
        **dict.fromkeys(("sasl.username", "sasl.password"), "set the block sasl, for all clients"),
        "log_level": "set log.level",
    }
)
"""Properties that cannot be passed on, with the remedy."""

_KAFKA_PYTHON = {
    name: default
    for name, default in KafkaConnectionManager.DEFAULT_CONFIG.items()
    if name not in {"bootstrap_servers", "client_id", "api_version", "metrics", "metric_group_prefix", "proxy_url"}
    and not name.startswith(("ssl_", "sasl_plain_", "sasl_oauth_", "client_software_"))
    and not isinstance(default, list)
}
"""The properties that kafka-python has, with their defaults, without those that Headgate sets."""

_OF_THE_BLOCK = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The mechanisms of the block `sasl`."""

_OTHER_IN_JAVA = frozenset({"sasl.oauthbearer.config", "sasl.kerberos.kinit.cmd", "ssl.cipher.suites"})
"""They mean something else in Java."""


def mistakes(
    properties: Mapping[str, SecretStr], protocol: str, *, has_tls: bool, has_sasl: bool
) -> Iterator[tuple[str, str]]:
    """Yield names that are refused or that no client knows, and values that a client refuses, with a sentence each.

    The name is empty for a contradiction between several properties.
    """
    found = dict(_each_mistake(properties, has_tls=has_tls, has_sasl=has_sasl))
    yield from found.items()
    if properties and not found:
        # Not those of OAUTHBEARER, with which librdkafka would send the secret to the endpoint at once.
        together = {k: v for k, v in for_confluent(properties).items() if not k.startswith("sasl.oauthbearer.")}
        refusal = _refusal(together if has_sasl else {**together, "security.protocol": protocol})
        if refusal is not None:
            yield "", refusal


def _each_mistake(properties: Mapping[str, SecretStr], *, has_tls: bool, has_sasl: bool) -> Iterator[tuple[str, str]]:
    for name, value in reveal(properties).items():
        alone = {} if name == "security.protocol" else {name: value}  # SASL alone would mean Kerberos
        if (remedy := REFUSED.get(name)) is not None:
            yield name, remedy
        elif name == "security.protocol" and (has_tls or has_sasl):
            yield name, "follows from tls and sasl beside `properties`: leave it out"
        elif name == "sasl.mechanism" and (has_sasl or value in _OF_THE_BLOCK):
            yield name, "belongs to the block sasl, which reaches all clients: set it there"
        elif (refusal := _python_refusal(name, value) if "_" in name else _refusal(alone)) is not None:
            yield name, refusal


def _refusal(options: dict[str, str]) -> str | None:
    """Return why librdkafka refuses options; without servers it connects to nothing."""
    try:
        AdminClient({**options, "log_level": 0})
    except KafkaException as error:
        why = without_secrets(error.args[0].str().strip().removesuffix("."))
        is_java = "No such" in why or "Java" in why
        return f"librdkafka: {why}" + ("; for the query's Java client set it in stream.kafka" if is_java else "")
    return None


def _python_refusal(name: str, value: str) -> str | None:
    if name not in _KAFKA_PYTHON:
        return "no property of kafka-python, or one that Headgate sets; librdkafka's names have dots"
    try:
        _convert(name, value)
    except (ValueError, KeyError):
        return f"must be written as its default, {_KAFKA_PYTHON[name]}"
    return None


def _convert(name: str, value: str) -> str | int | bool:
    default = _KAFKA_PYTHON[name]
    if isinstance(default, bool):
        return {"true": True, "false": False}[value.lower()]
    return int(value) if isinstance(default, int) else value


def reveal(properties: Mapping[str, SecretStr]) -> dict[str, str]:
    """Return the properties in plain text, and keep those that may be secrets out of errors and logs."""
    plain = {name: value.get_secret_value() for name, value in properties.items()}
    for name in filter(SECRET_NAME.search, plain):
        remember_secret(plain[name])
    return plain


def for_confluent(properties: Mapping[str, SecretStr]) -> dict[str, str]:
    """Return librdkafka's properties."""
    return {name: value for name, value in reveal(properties).items() if "_" not in name}


def for_kafka_python(properties: Mapping[str, SecretStr]) -> dict[str, str | int | bool]:
    """Return the keyword arguments of kafka-python: those with librdkafka's names, overridden by its own.

    The protocol is in its own form only; librdkafka's also accepts small letters.
    """
    named = sorted(reveal(properties).items(), key=lambda each: "_" in each[0])
    written = {name.replace(".", "_"): value for name, value in named if name != "security.protocol"}
    return {name: _convert(name, value) for name, value in written.items() if name in _KAFKA_PYTHON}


def for_java(properties: Mapping[str, SecretStr]) -> dict[str, str]:
    """Return the properties of the query's Java client, which ignores names that it does not have."""
    return {name: value for name, value in for_confluent(properties).items() if name not in _OTHER_IN_JAVA}
