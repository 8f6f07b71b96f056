"""Connection settings of one Kafka cluster: one model for the three client libraries.

The loop's own cluster and every watched cluster use the same model. confluent-kafka (records), kafka-python (log dirs
and quotas) and Spark (the query) each get an equivalent configuration.
"""

import base64
import binascii
import logging
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import httpx
import structlog
from confluent_kafka import KafkaError, KafkaException
from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider
from msgspec import Struct
from pydantic import Field, SecretStr

from connectors.foreign_json import read_json
from connectors.http.client import bounded_client
from connectors.http.tls import Tls
from connectors.redaction import RedactedBlock, read_text, secret
from policies.units import UserError

# OAuth 2 tokens for kafka-python, by the client credentials grant; the other clients fetch their own.

TOKEN_TIMEOUT_SECONDS = 5.0
_MAX_ANSWER_BYTES = 1024 * 1024
_RENEW_AT_SHARE = 0.8
_DEFAULT_LIFE_SECONDS = 300.0
_LONGEST_LIFE_SECONDS = 86_400.0


class _Answer(Struct):
    access_token: str = ""
    expires_in: float | str | None = None


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Fetches a token, and a new one after four fifths of its lifetime.

    kafka-python requests the token on its only input-output thread, where a slow endpoint would delay all connections.
    So call `renew_if_due` from another thread before connections are made.
    """

    def __init__(
        self,
        endpoint: str,
        client_id: str,
        client_secret: str,
        scope: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._scope = scope
        # RFC 6749, 2.3.1: both are form-encoded before they are joined.
        pair = f"{urllib.parse.quote_plus(client_id)}:{urllib.parse.quote_plus(client_secret)}"
        self._authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = -1.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(endpoint={self._endpoint!r})"

    def token(self) -> str:
        """Return a valid token.

        Raises:
            SaslAuthenticationFailedError: the endpoint refuses, does not answer, or its answer has no token.
        """
        self.renew_if_due()
        return self._token

    def renew_if_due(self) -> None:
        """Fetch a token if there is none, or if it expires soon. Raises as `token` does."""
        with self._lock:
            if self._clock() < self._renew_at:
                return
            answer = self._fetch()
            life_seconds = _life_seconds(answer)
            self._token = answer.access_token
            self._renew_at = self._clock() + life_seconds * _RENEW_AT_SHARE

    def _fetch(self) -> _Answer:
        form = {"grant_type": "client_credentials"} | ({"scope": self._scope} if self._scope else {})
        headers = {"Authorization": self._authorization, "Accept": "application/json"}
        try:
            # A new client each time: tokens are few, and certificates change.
            with bounded_client(
                Tls().ssl_context(), TOKEN_TIMEOUT_SECONDS, max_answer_bytes=_MAX_ANSWER_BYTES
            ) as client:
                response = client.post(self._endpoint, data=form, headers=headers)
            if not response.is_success:  # a redirect is refused, too: the secret is for this endpoint only
                raise _failed(f"the token endpoint answers {response.status_code}")
            answer = read_json(response.content, _Answer)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise _failed(f"no token from the endpoint ({type(error).__name__})") from None
        if not answer.access_token:
            raise _failed("the token endpoint answers no access_token")
        return answer


def _life_seconds(answer: _Answer) -> float:
    try:
        life_seconds = float(answer.expires_in or _DEFAULT_LIFE_SECONDS)
    except ValueError:
        raise _failed("the token endpoint answers an expires_in that is no number") from None
    return min(max(0.0, life_seconds), _LONGEST_LIFE_SECONDS)


def _failed(why: str) -> SaslAuthenticationFailedError:
    return SaslAuthenticationFailedError(f"OAUTHBEARER: {why}")


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

    @property
    def is_oauth(self) -> bool:
        """Whether the client authenticates with a token instead of a password."""
        return self.mechanism is SaslMechanism.OAUTHBEARER

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield fields that the mechanism needs and that are missing, and fields that it does not use."""
        of_user, of_client = ("username", "password"), ("client_id", "client_secret", "token_endpoint")
        needed, foreign = (of_client, of_user) if self.is_oauth else (of_user, (*of_client, "scope"))
        for field in needed:
            if not self._is_given(field):
                or_file = f" (or {field}_file)" if f"{field}_file" in type(self).model_fields else ""
                yield field, f"mechanism {self.mechanism} needs it{or_file}"
        for field in foreign:
            if self._is_given(field):
                yield field, f"has no meaning with mechanism {self.mechanism}: leave it out"
        for field in ("username", "password"):
            if "\0" in (_plain(getattr(self, field)) or ""):
                yield field, "must not contain a NUL character"

    def _is_given(self, field: str) -> bool:
        return getattr(self, field) is not None or getattr(self, f"{field}_file", None) is not None

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

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield malformed addresses."""
        for number, server in enumerate(self.servers(), 1):
            match = _SERVER.fullmatch(server)
            if match is None or not 0 < int(match["port"]) < 65536:
                yield "bootstrap_servers", f"its entry {number} is not host:port, such as kafka-1.example.org:9092"

    def servers(self) -> list[str]:
        """Return the bootstrap servers as a list."""
        return [server.strip() for server in self.bootstrap_servers.split(",")]

    @property
    def security_protocol(self) -> str:
        """Kafka's name for the combination of encryption and authentication."""
        transport = "PLAINTEXT" if self.tls is None else "SSL"
        return transport if self.sasl is None else f"SASL_{transport}"

    def for_confluent(self) -> dict[str, Any]:
        """Return properties for librdkafka, which confluent-kafka uses."""
        return {**self._common(), **self._tls_for_confluent(), **self._sasl_for_confluent()}

    def for_kafka_python(self) -> dict[str, Any]:
        """Return keyword arguments for the clients of kafka-python."""
        return {
            "bootstrap_servers": self.servers(),
            "security_protocol": self.security_protocol,
            # kafka-python's own context would ask for the password of an encrypted key on the terminal.
            **({} if self.tls is None else {"ssl_context": self.tls.ssl_context()}),
            **self._sasl_for_kafka_python(),
        }

    def for_spark(self) -> dict[str, str]:
        """Return properties for the Java client 3.9; Spark's source and sink take them with the prefix `kafka.`."""
        return {**self._common(), **self._tls_for_java(), **self._sasl_for_java()}

    def _common(self) -> dict[str, str]:
        return {"bootstrap.servers": ",".join(self.servers()), "security.protocol": self.security_protocol}

    def _tls_for_confluent(self) -> dict[str, str]:
        if self.tls is None:
            return {}
        return _present(
            {
                "ssl.endpoint.identification.algorithm": "https" if self.tls.verify_hostname else "none",
                "ssl.ca.location": self.tls.ca_file,
                "ssl.certificate.location": self.tls.cert_file,
                "ssl.key.location": self.tls.key_file,
                "ssl.key.password": self.tls.password(),
            }
        )

    def _sasl_for_confluent(self) -> dict[str, str]:
        if self.sasl is None:
            return {}
        if not self.sasl.is_oauth:
            user = {"sasl.username": self.sasl.username, "sasl.password": self.sasl.user_password()}
            return _present({"sasl.mechanism": self.sasl.mechanism, **user})
        return _present(
            {
                "sasl.mechanism": self.sasl.mechanism,
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": self.sasl.client_id,
                "sasl.oauthbearer.client.secret": self.sasl.oauth_secret(),
                "sasl.oauthbearer.token.endpoint.url": self.sasl.token_endpoint,
                "sasl.oauthbearer.scope": self.sasl.scope,
            }
        )

    def _sasl_for_kafka_python(self) -> dict[str, Any]:
        if self.sasl is None:
            return {}
        mechanism = {"sasl_mechanism": self.sasl.mechanism.value}
        if not self.sasl.is_oauth:
            user = {"sasl_plain_username": self.sasl.username, "sasl_plain_password": self.sasl.user_password()}
            return {**mechanism, **user}
        tokens = ClientCredentials(
            self.sasl.token_endpoint or "", self.sasl.client_id or "", self.sasl.oauth_secret(), self.sasl.scope
        )
        return {**mechanism, "sasl_oauth_token_provider": tokens}

    def _tls_for_java(self) -> dict[str, str]:
        if self.tls is None:
            return {}
        options = {"ssl.endpoint.identification.algorithm": "https" if self.tls.verify_hostname else ""}
        if self.tls.ca_file is not None:
            # As text, because executors on other machines do not have the files of this one.
            authorities = read_text(self.tls.ca_file, "tls.ca_file")
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
        if self.tls.cert_file is not None and self.tls.key_file is not None:
            # As text, because Java would require the key and the chain in one file.
            options |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": read_text(self.tls.cert_file, "tls.cert_file"),
                "ssl.keystore.key": _pkcs8(self.tls.key_file),
            }
            password = self.tls.password()
            options |= {} if password is None else {"ssl.key.password": password}
        return options

    def _sasl_for_java(self) -> dict[str, str]:
        if self.sasl is None:
            return {}
        sasl = self.sasl
        mechanism = {"sasl.mechanism": sasl.mechanism.value}
        if not sasl.is_oauth:
            module = "plain.PlainLoginModule" if sasl.mechanism is SaslMechanism.PLAIN else "scram.ScramLoginModule"
            jaas = _jaas(module, username=sasl.username, password=sasl.user_password())
            return {**mechanism, "sasl.jaas.config": jaas}
        module = "oauthbearer.OAuthBearerLoginModule"
        jaas = _jaas(module, clientId=sasl.client_id, clientSecret=sasl.oauth_secret(), scope=sasl.scope)
        return {
            **mechanism,
            "sasl.jaas.config": jaas,
            "sasl.oauthbearer.token.endpoint.url": sasl.token_endpoint or "",
            "sasl.login.callback.handler.class": f"{_JAVA_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
        }


def _plain(value: str | SecretStr | None) -> str | None:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


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


# Makes confluent-kafka's clients, explains their errors, and limits librdkafka's messages in our log.

REPEAT_SECONDS = 60.0

_log = structlog.get_logger(__name__)

Client = TypeVar("Client")

_VARYING = re.compile(r"\d+")


class RepeatFilter(logging.Filter):
    """Passes a message once in `REPEAT_SECONDS`; messages that differ only in numbers count as one.

    librdkafka reports each failed connection: with a wrong certificate that is 20 messages a second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message passes."""
        kind, now = _VARYING.sub("#", record.getMessage()), self._clock()
        if now - self._passed_at.get(kind, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        self._passed_at = {known: at for known, at in self._passed_at.items() if now - at < REPEAT_SECONDS}
        self._passed_at[kind] = now
        return True


LOGGER = logging.getLogger("headgate.librdkafka")
"""The `logger` argument of confluent-kafka's clients."""

LOGGER.addFilter(RepeatFilter())


_NO_ANSWER = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT})


def build_client(kind: Callable[..., Client], options: Mapping[str, Any]) -> Client:
    """Make a confluent-kafka client that logs to our log.

    Raises:
        UserError: the options, or the files that they name, cannot be used.
    """
    try:
        return kind(options, logger=LOGGER)
    except KafkaException as error:
        raise UserError(f"kafka: {error.args[0].str()}.") from None


def rebuild(build: Callable[[], Client]) -> Client | None:
    """Build a client again; None, with a warning, if its files cannot be used.

    They may be half written. So the caller keeps its old client, and tries again at its next check.
    """
    try:
        return build()
    except UserError as error:
        _log.warning("connection files cannot be used at present", detail=str(error))
        return None


def root_error(error: KafkaError, last: KafkaError | None) -> KafkaError:
    """Return the error that names the cause of a failed request.

    A request that nobody answers fails without a cause; the client's `error_cb` received it before (`last`).
    """
    return last if error.code() in _NO_ANSWER and last is not None else error


def no_answer(servers: Sequence[str], why: KafkaError) -> str:
    """Return a clause about a Kafka that does not answer."""
    return f"Kafka at {','.join(servers)} does not answer as it should: {why.name()}: {why.str()}"
