"""The plugin's admin client as a Kafka connection of Headgate's settings.

Java's properties name key stores, and one JAAS line for identity and password. Headgate reads PEM files, and secrets
only from files or the environment: so a store has to be converted once, and no secret is printed.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from connectors.kafka.connection import SaslMechanism

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
            f"kafka.admin.{_MECHANISM}={mechanism}: Headgate's client has {', '.join(SaslMechanism)}; create a user "
            "with one of these for it, and name that mechanism here"
        )


def explain_connection(admin: Mapping[str, str], environment: str) -> Iterator[str]:
    """Yield what the operator must do before the connection works.

    Args:
        admin: the admin client's properties without their prefix.
        environment: the environment variable of the block `kafka`, to which a setting's name is appended.
    """
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
