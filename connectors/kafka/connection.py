"""Connection settings of one Kafka cluster: one model for the three client libraries.

The loop's own cluster and every watched cluster use the same model. confluent-kafka (records), kafka-python (log dirs
and quotas) and Spark (the query) each get an equivalent configuration.
"""

import binascii
import re
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr

from connectors.component import load_named
from connectors.http.tls import Tls
from connectors.kafka import properties as client_properties
from connectors.kafka.clients import TokenSource, fetch_by_credentials, fetch_from_provider
from connectors.redaction import RedactedBlock, read_text, secret
from policies.units import PositiveDuration, UserError, parse_duration

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_PKCS8 = re.compile(r"-----BEGIN (?:ENCRYPTED )?PRIVATE KEY-----(?P<base64>[^-]+)-----END")
_PBES2 = bytes.fromhex("06092a864886f70d01050d")  # the identifier of the scheme, 1.2.840.113549.1.5.13, in DER
_JAVA_SECURITY = "org.apache.kafka.common.security"
_JAAS_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})
"""Java's StreamTokenizer understands backslash escapes, and a line end would end the string."""


class SaslMechanism(StrEnum):
    """How the client authenticates."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


class Sasl(RedactedBlock):
    """The client's identity: a user with a password, or an OAuth 2 client with its secret."""

    mechanism: SaslMechanism
    username: str | None = Field(default=None, min_length=1)
    password: SecretStr | None = Field(default=None, min_length=1)
    password_file: Path | None = Field(default=None, description="The password in a file. A change starts anew.")
    client_id: str | None = Field(default=None, min_length=1, description="OAUTHBEARER only.")
    client_secret: SecretStr | None = Field(default=None, min_length=1, description="OAUTHBEARER only.")
    client_secret_file: Path | None = Field(default=None, description="The client's secret in a file.")
    token_endpoint: str | None = Field(
        default=None, pattern=r"^https?://[^\s@]+$", description="OAUTHBEARER only: the URL that issues its tokens."
    )
    scope: str | None = Field(default=None, min_length=1, description="OAUTHBEARER only: the scope of its tokens.")
    token_provider: str | None = Field(
        default=None,
        pattern=r"^[\w.]+:\w+$",
        description="OAUTHBEARER only, instead of a client: `module:attribute` of a function that returns tokens "
        "(docs/managed-kafka.md).",
    )

    @property
    def is_oauth(self) -> bool:
        """Whether the client authenticates with a token instead of a password."""
        return self.mechanism is SaslMechanism.OAUTHBEARER

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield fields that the mechanism needs and that are missing, and fields that it does not use."""
        of_user, of_client = ("username", "password"), ("client_id", "client_secret", "token_endpoint")
        provider = self.token_provider if self.is_oauth else None
        needed: tuple[str, ...] = of_client if self.is_oauth else of_user
        used = {*needed, "scope"} if self.is_oauth else {*needed}
        if provider is not None:
            needed, used = (), {"token_provider"}
            try:
                if not callable(load_named(provider, "token_provider")):
                    yield "token_provider", f"{provider} is no function"
            except UserError as error:
                yield "token_provider", str(error)
        for field in (*of_user, *of_client, "scope", "token_provider"):
            is_given = getattr(self, field) is not None or getattr(self, f"{field}_file", None) is not None
            if field in needed and not is_given:
                or_file = f" (or {field}_file)" if f"{field}_file" in type(self).model_fields else ""
                yield field, f"mechanism {self.mechanism} needs it{or_file}"
            elif field not in used and is_given:
                beside = "token_provider" if provider else f"mechanism {self.mechanism}"
                yield field, f"has no meaning with {beside}: leave it out"

    def user_password(self) -> str:
        """Return the user's password."""
        return secret(self.password, self.password_file, "sasl.password_file") or ""

    def oauth_secret(self) -> str:
        """Return the OAuth client's secret."""
        return secret(self.client_secret, self.client_secret_file, "sasl.client_secret_file") or ""


class KafkaConnection(RedactedBlock):
    """The address of a cluster, encryption and authentication. `for_…` return them for each client library.

    Their results hold secrets in plain text, so never print them. They read the files that they need, and raise
    UserError if one is missing or has the wrong content.
    """

    bootstrap_servers: str = Field(description="`host:port`, comma separated: some of the brokers, two or three.")
    tls: Tls | None = Field(default=None, description="Present: the connection is encrypted.")
    sasl: Sasl | None = Field(default=None, description="Present: the client authenticates with SASL.")
    properties: client_properties.Properties = Field(
        default_factory=dict,
        description="Further client properties by librdkafka's names, such as `client.dns.lookup` "
        "(docs/managed-kafka.md).",
    )

    def problems(self) -> Iterator[tuple[str | tuple[str, ...], str]]:
        """Yield malformed addresses, and properties that cannot be passed on."""
        for number, server in enumerate(self.servers(), 1):
            match = _SERVER.fullmatch(server)
            if match is None or not 0 < int(match["port"]) < 65536:
                yield "bootstrap_servers", f"its entry {number} is not host:port, such as kafka-1.example.org:9092"
        for name, mistake in client_properties.mistakes(
            self.properties, self.security_protocol, has_tls=self.tls is not None, has_sasl=self.sasl is not None
        ):
            yield ("properties", name) if name else "properties", mistake

    def servers(self) -> list[str]:
        """Return the bootstrap servers as a list."""
        return [server.strip() for server in self.bootstrap_servers.split(",")]

    @property
    def username(self) -> str | None:
        """The user's name at Kafka; None without a login, or with one whose name the settings do not have."""
        return None if self.sasl is None else self.sasl.username

    @property
    def security_protocol(self) -> str:
        """Kafka's name for the combination of encryption and authentication."""
        given = client_properties.reveal(self.properties)
        transport = "PLAINTEXT" if self.tls is None else "SSL"
        has_login = self.sasl is not None or "sasl.mechanism" in given
        return given.get("security.protocol", f"SASL_{transport}" if has_login else transport).upper()

    @property
    def needs_java_login(self) -> bool:
        """Whether the Java client needs a login of its own, because none follows from these settings."""
        has_login = self.sasl is not None and self.sasl.token_provider is None
        return self.security_protocol.startswith("SASL") and not has_login

    @property
    def encryption(self) -> Tls | None:
        """The TLS settings; None if the connection is not encrypted."""
        return self.tls or (Tls() if self.security_protocol.endswith("SSL") else None)

    def for_confluent(self) -> dict[str, Any]:
        """Return properties for librdkafka, which confluent-kafka uses."""
        options: dict[str, Any] = {**client_properties.for_confluent(self.properties), **self._common()}
        if (tls := self.tls) is not None:
            options |= _present(
                {
                    "ssl.endpoint.identification.algorithm": "https" if tls.verify_hostname else "none",
                    "ssl.ca.location": tls.ca_file,
                    "ssl.certificate.location": tls.cert_file,
                    "ssl.key.location": tls.key_file,
                    "ssl.key.password": tls.password(),
                }
            )
        if (sasl := self.sasl) is not None:
            options["sasl.mechanism"] = sasl.mechanism.value
            if sasl.is_oauth:  # not librdkafka's own method: both Python clients get their tokens in one way
                options["oauth_cb"] = self._tokens(sasl)
            else:
                options |= _present({"sasl.username": sasl.username, "sasl.password": sasl.user_password()})
        return options

    def for_kafka_python(self) -> dict[str, Any]:
        """Return keyword arguments for the clients of kafka-python."""
        tls, sasl, login = self.encryption, self.sasl, dict[str, Any]()
        if sasl is not None:
            login["sasl_mechanism"] = sasl.mechanism.value
            if sasl.is_oauth:
                login["sasl_oauth_token_provider"] = self._tokens(sasl)
            else:
                login |= {"sasl_plain_username": sasl.username, "sasl_plain_password": sasl.user_password()}
        return {
            "bootstrap_servers": self.servers(),
            "security_protocol": self.security_protocol,
            # kafka-python's own context would ask for the password of an encrypted key on the terminal.
            **({} if tls is None else {"ssl_context": tls.ssl_context()}),
            **login,
            **client_properties.for_kafka_python(self.properties),
        }

    def for_spark(self) -> dict[str, str]:
        """Return properties for the Java client 3.9; Spark's source and sink take them with the prefix `kafka.`."""
        passed = client_properties.for_java(self.properties)
        tls = {} if self.tls is None else _tls_for_java(self.tls)
        return {**passed, **self._common(), **tls, **self._sasl_for_java()}

    def _common(self) -> dict[str, str]:
        return {"bootstrap.servers": ",".join(self.servers()), "security.protocol": self.security_protocol}

    def _tokens(self, sasl: Sasl) -> TokenSource:
        if sasl.token_provider is not None:
            config = client_properties.reveal(self.properties).get("sasl.oauthbearer.config", "")
            return TokenSource(partial(fetch_from_provider, sasl.token_provider, config))
        client = (sasl.token_endpoint or "", sasl.client_id or "", sasl.oauth_secret(), sasl.scope)
        return TokenSource(partial(fetch_by_credentials, *client))

    def _sasl_for_java(self) -> dict[str, str]:
        if (sasl := self.sasl) is None:
            return {}
        options = {"sasl.mechanism": sasl.mechanism.value}
        if not sasl.is_oauth:
            module = "plain.PlainLoginModule" if sasl.mechanism is SaslMechanism.PLAIN else "scram.ScramLoginModule"
            options["sasl.jaas.config"] = _jaas(module, username=sasl.username, password=sasl.user_password())
        elif sasl.token_provider is None:  # Java cannot call a provider: `stream.kafka` names the login
            client = {"clientId": sasl.client_id, "clientSecret": sasl.oauth_secret(), "scope": sasl.scope}
            options |= {
                "sasl.jaas.config": _jaas("oauthbearer.OAuthBearerLoginModule", **client),
                "sasl.oauthbearer.token.endpoint.url": sasl.token_endpoint or "",
                "sasl.login.callback.handler.class": f"{_JAVA_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
            }
        return options


def _tls_for_java(tls: Tls) -> dict[str, str]:
    # As text, because executors on other machines lack these files, and Java would need key and chain in one file.
    authorities = tls.ca_file and read_text(tls.ca_file, "tls.ca_file")
    chain = tls.cert_file and read_text(tls.cert_file, "tls.cert_file")
    return _present(
        {
            "ssl.endpoint.identification.algorithm": "https" if tls.verify_hostname else "",
            "ssl.truststore.type": authorities and "PEM",
            "ssl.truststore.certificates": authorities,
            "ssl.keystore.type": chain and "PEM",
            "ssl.keystore.certificate.chain": chain,
            "ssl.keystore.key": tls.key_file and _pkcs8(tls.key_file),
            "ssl.key.password": tls.password() if chain else None,
        }
    )


def _present(options: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items() if value is not None}


def _pkcs8(key_file: Path) -> str:
    key = read_text(key_file, "tls.key_file")
    match = _PKCS8.search(key)
    if match is None:
        raise UserError(
            f"tls.key_file: {key_file} is not a PKCS#8 key ('BEGIN PRIVATE KEY'), the only kind Java reads: convert it "
            f"with 'openssl pkcs8 -topk8 -nocrypt -in {key_file} -out NEW_FILE'."
        )
    try:
        der = binascii.a2b_base64(match["base64"])
    except binascii.Error:
        der = b""
    if _PBES2 in der:
        raise UserError(
            f"tls.key_file: {key_file} is encrypted in a way (PBES2) that Java 17 does not read: encrypt it with "
            f"'openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in {key_file} -out NEW_FILE', or give it without a password."
        )
    return key


def _jaas(module: str, **options: str | None) -> str:
    given = "".join(
        f' {name}="{value.translate(_JAAS_ESCAPES)}"' for name, value in options.items() if value is not None
    )
    return f"{_JAVA_SECURITY}.{module} required{given};"


class WatchedKafka(KafkaConnection):
    """A Kafka cluster whose log dirs are watched: its connection and the intervals of readings."""

    poll_interval: PositiveDuration = Field(
        default=parse_duration("10s"),
        description="The interval between readings, while no volume of a broker is near a limit.",
    )
    poll_interval_min: PositiveDuration = Field(
        default=parse_duration("1s"),
        description="The shortest interval between readings of a broker with a volume near a limit. With the value of "
        "`poll_interval`, or a longer one, the interval is always the same.",
    )
    poll_requests_per_second: float = Field(
        default=100.0,
        ge=0.1,
        le=10_000.0,
        description="Maximum rate of additional readings near a limit, for all brokers of the cluster together.",
    )
    timeout: PositiveDuration = Field(
        default=parse_duration("5s"), description="The limit for one broker's answer; at most `poll_interval`."
    )

    @property
    def timeout_seconds(self) -> float:
        """The effective timeout."""
        return min(self.timeout, self.poll_interval).total_seconds()
