"""One description of a connection, in the words of three clients; and no secret in any message."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.errors import SaslAuthenticationFailedError
from pydantic import BaseModel, ValidationError

from connectors.kafka import publisher, tail
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.properties import REFUSED
from connectors.kafka.topics import PartitionSettings
from connectors.membership import Membership
from policies.units import UserError
from tests.cases import for_each
from tests.certificates import self_sign

SECRET = "hunter2-never-shown"
SERVERS = "kafka-1:9092, kafka-2:9092"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate with its key, plain and encrypted, and a password in a file."""
    folder = tmp_path_factory.mktemp("made")
    key, cert, locked = folder / "key.pem", folder / "cert.pem", folder / "locked.pem"
    self_sign(key, cert)
    quiet: dict[str, Any] = {"check": True, "capture_output": True}
    lock: list[str | Path] = ["openssl", "pkcs8", "-topk8", "-in", key, "-passout", f"pass:{SECRET}"]
    subprocess.run([*lock, "-v1", "PBE-SHA1-3DES", "-out", locked], **quiet)
    subprocess.run([*lock, "-out", folder / "pbes2.pem"], **quiet)
    (folder / "password").write_text(f"{SECRET}\n")
    return folder


@pytest.fixture
def files(made: Path, tmp_path: Path) -> dict[str, str]:
    """Those, in the test's own folder."""
    return {file.name: str(shutil.copy(file, tmp_path)) for file in made.iterdir()}


def connection(**blocks: Any) -> KafkaConnection:
    return KafkaConnection(bootstrap_servers=SERVERS, **blocks)


def jaas(module: str, options: str) -> str:
    return f"org.apache.kafka.common.security.{module} required {options};"


BOTH = "kafka-1:9092,kafka-2:9092"

SSL = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "https"}
SASL = {"security.protocol": "SASL_PLAINTEXT"}
SASL_SSL = {**SSL, "security.protocol": "SASL_SSL"}
PLAIN, SCRAM, OAUTH = ({"sasl.mechanism": name} for name in ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"))
LOGIN = {"sasl.username": "u", "sasl.password": SECRET}
PYTHON_LOGIN = {"sasl_plain_username": "u", "sasl_plain_password": SECRET}
JAVA_LOGIN = f'username="u" password="{SECRET}"'
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": "https://id.example.org/token"}

TUNED = {"client.dns.lookup": "use_all_dns_ips", "connections.max.idle.ms": 70_000, "socket.nagle.disable": True}
TUNED_TEXT = {**TUNED, "connections.max.idle.ms": "70000", "socket.nagle.disable": "true"}

MAPPINGS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "tls without host names": (
        {"tls": {"ca_file": "cert.pem", "verify_hostname": False}},
        {**SSL, "ssl.endpoint.identification.algorithm": "none", "ssl.ca.location": "cert.pem"},
        {"security_protocol": "SSL"},
        {
            **SSL, "ssl.endpoint.identification.algorithm": "", "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "content of cert.pem",
        },
    ),
    "client certificate with an encrypted key": (
        {"tls": {"cert_file": "cert.pem", "key_file": "locked.pem", "key_password_file": "password"}},
        {**SSL, "ssl.certificate.location": "cert.pem", "ssl.key.location": "locked.pem", "ssl.key.password": SECRET},
        {"security_protocol": "SSL"},
        {
            **SSL, "ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "content of cert.pem",
            "ssl.keystore.key": "content of locked.pem", "ssl.key.password": SECRET,
        },
    ),
    "plain": (
        {"sasl": {"mechanism": "PLAIN", "username": "u", "password": SECRET}},
        SASL | PLAIN | LOGIN,
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **PYTHON_LOGIN},
        {**SASL, **PLAIN, "sasl.jaas.config": jaas("plain.PlainLoginModule", JAVA_LOGIN)},
    ),
    "scram over tls, password in a file": (
        {"tls": {}, "sasl": {"mechanism": "SCRAM-SHA-512", "username": "u", "password_file": "password"}},
        SASL_SSL | SCRAM | LOGIN,
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", **PYTHON_LOGIN},
        {**SASL_SSL, **SCRAM, "sasl.jaas.config": jaas("scram.ScramLoginModule", JAVA_LOGIN)},
    ),
    "oauth": (
        {
            "sasl": {
                "mechanism": "OAUTHBEARER", "client_id": "c", "client_secret": SECRET, "scope": "kafka",
                "token_endpoint": "https://id.example.org/token",
            }
        },
        SASL | OAUTH,
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"},
        {
            **SASL, **OAUTH, **ENDPOINT,
            "sasl.jaas.config": jaas(
                "oauthbearer.OAuthBearerLoginModule", f'clientId="c" clientSecret="{SECRET}" scope="kafka"'
            ),
            "sasl.login.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
        },
    ),
    "properties that a client does not have, and numbers": (
        {"properties": {**TUNED, "request_timeout_ms": "5000", "connections_max_idle_ms": "60000"}},
        {"security.protocol": "PLAINTEXT", **TUNED_TEXT},
        {
            "security_protocol": "PLAINTEXT", "client_dns_lookup": "use_all_dns_ips", "connections_max_idle_ms": 60_000,
            "request_timeout_ms": 5000,
        },
        {"security.protocol": "PLAINTEXT", **TUNED_TEXT},
    ),
}  # fmt: skip


KERBEROS = {"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "broker", "sasl.kerberos.kinit.cmd": "kinit -R"}


def test_kerberos_reaches_all_clients_where_librdkafka_is_built_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.kafka.properties._refusal", lambda _: None)  # the wheel has no libsasl2
    given = connection(properties={"security.protocol": "sasl_plaintext", **KERBEROS})
    assert given.for_confluent() == {"bootstrap.servers": BOTH, "security.protocol": "SASL_PLAINTEXT", **KERBEROS}
    assert given.for_kafka_python() == {
        "bootstrap_servers": BOTH.split(","), "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "broker",
    }  # fmt: skip
    assert given.for_spark() == {
        "bootstrap.servers": BOTH, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "broker",
    }  # fmt: skip
    assert given.needs_java_login


def provide(config: str) -> tuple[str, float]:
    """As a user's function does; the text is a part of the token, and a lifetime of no number a mistake."""
    return f"token of {config}", float(config.partition("=")[2] or "inf")


PROVIDED = {"mechanism": "OAUTHBEARER", "token_provider": f"{__name__}:provide"}


def test_a_users_function_gives_both_clients_their_tokens() -> None:
    given = connection(sasl=PROVIDED, properties={"sasl.oauthbearer.config": "ends=4102444800"})
    options = given.for_confluent()
    provider = options.pop("oauth_cb")
    assert options == {
        "bootstrap.servers": BOTH, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": "ends=4102444800",
    }  # fmt: skip
    assert given.for_spark().keys() == {"bootstrap.servers", "security.protocol", "sasl.mechanism"}
    token, expires_at = provider("ignored")
    assert token == "token of ends=4102444800"
    assert 86_000 < expires_at - time.time() <= 86_400, "at most a day"
    assert given.for_kafka_python()["sasl_oauth_token_provider"].token() == "token of ends=4102444800"
    assert given.needs_java_login
    failing = connection(sasl=PROVIDED, properties={"sasl.oauthbearer.config": f"ends={SECRET}"})
    with pytest.raises(SaslAuthenticationFailedError, match=r"no token from \S+:provide \(ValueError\)") as raised:
        failing.for_kafka_python()["sasl_oauth_token_provider"].token()
    assert SECRET not in str(raised.value)


def own_options() -> Iterator[str]:
    """The names of the options that each of our clients of librdkafka sets."""
    yield from (*publisher._options("x", 1.0), *tail._options("x"))
    settings = PartitionSettings.model_validate({"instance": "i"})
    membership = SimpleNamespace(
        _settings=settings, _group=SimpleNamespace(name="g", member="m"), _handle_commit=None, _note=None
    )
    yield from Membership._options(cast("Membership", membership))


def test_what_our_clients_set_cannot_be_a_property() -> None:
    callbacks = {"on_commit", "error_cb"}
    assert set(own_options()) - callbacks - REFUSED.keys() == set()


def with_paths(value: Any, files: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: with_paths(inner, files) for key, inner in value.items()}
    if isinstance(value, str) and value.startswith("content of "):
        return Path(files[value.removeprefix("content of ")]).read_text()
    return files.get(value, value) if isinstance(value, str) else value


@for_each("case", MAPPINGS)
def test_each_client_gets_the_same_meaning_in_its_own_words(case: str, files: dict[str, str]) -> None:
    """Blocks, and properties as far as a client has them."""
    blocks, confluent, kafka_python, spark = (with_paths(part, files) for part in MAPPINGS[case])
    given = connection(**blocks)
    of_confluent = given.for_confluent()
    assert (of_confluent.pop("oauth_cb", None) is not None) == (case == "oauth")
    assert of_confluent == {"bootstrap.servers": BOTH, **confluent}
    assert given.for_spark() == {"bootstrap.servers": BOTH, **spark}
    options = given.for_kafka_python()
    context, tokens = options.pop("ssl_context", None), options.pop("sasl_oauth_token_provider", None)
    assert options == {"bootstrap_servers": BOTH.split(","), **kafka_python}
    assert (context is not None) == ("tls" in blocks)
    assert context is None or context.check_hostname == blocks["tls"].get("verify_hostname", True)
    assert (tokens is not None) == (case == "oauth")
    assert given.needs_java_login is False
    assert SECRET not in f"{given!r} {given.model_dump_json()}"


@for_each(
    ("password", "in_java"),
    [
        ("é $(x) {{0}} ${env:HOME}\t%s ='x'", "é $(x) {{0}} ${env:HOME}\t%s ='x'"),
        ("a\nb\r", r"a\nb\r"),
        ('";', r"\";"),
        ("\\", r"\\"),
        ('\\"', r"\\\""),
    ],
)
def test_passwords_of_any_characters_survive(password: str, in_java: str) -> None:
    """Java's StreamTokenizer reads backslash escapes within double quotes, and ends at a line's end."""
    given = connection(sasl={"mechanism": "PLAIN", "username": 'u"\\', "password": password})
    assert given.for_confluent()["sasl.password"] == password
    assert given.for_kafka_python()["sasl_plain_password"] == password
    expected = jaas("plain.PlainLoginModule", rf'username="u\"\\" password="{in_java}"')
    assert given.for_spark()["sasl.jaas.config"] == expected


OAUTH = {"mechanism": "OAUTHBEARER", "client_id": "c", "client_secret": SECRET, "token_endpoint": "https://x/t"}
PLAIN = {"mechanism": "PLAIN", "username": "u", "password": SECRET}

MISTAKES: dict[str, tuple[dict[str, Any], str, str]] = {
    "no port": ({"bootstrap_servers": "a:1,b"}, "bootstrap_servers", "its entry 2 is not host:port"),
    "a secret among the servers": (
        {"bootstrap_servers": f"u:{SECRET}@a:1"}, "bootstrap_servers", "its entry 1 is not host:port",
    ),
    "no user": ({"sasl": {**PLAIN, "username": None}}, "sasl.username", "mechanism PLAIN needs it"),
    "an oauth field with plain": ({"sasl": {**PLAIN, "scope": "s"}}, "sasl.scope", "leave it out"),
    "a user with oauth": ({"sasl": {**OAUTH, "password": SECRET}}, "sasl.password", "leave it out"),
    "oauth without endpoint": ({"sasl": {**OAUTH, "token_endpoint": None}}, "sasl.token_endpoint", "needs it"),
    "a provider and a client": (
        {"sasl": {**OAUTH, "token_provider": f"{__name__}:provide"}}, "sasl.client_id",
        "no meaning with token_provider",
    ),
    "a provider that is not there": (
        {"sasl": {**PROVIDED, "token_provider": "no.such:function"}}, "sasl.token_provider", "No module named 'no'",
    ),
    "a provider that is no function": (
        {"sasl": {**PROVIDED, "token_provider": f"{__name__}:SECRET"}}, "sasl.token_provider", "is no function",
    ),
    "an unknown property": (
        {"properties": {"foo.bar": SECRET}}, "properties.foo.bar",
        'No such configuration property: "foo.bar"; for the query\'s Java client set it in stream.kafka',
    ),
    "an unknown property of kafka-python": (
        {"properties": {"sasl_kerberos_nam": SECRET}}, "properties.sasl_kerberos_nam", "no property of kafka-python",
    ),
    "a property of Java's": (
        {"properties": {"sasl.jaas.config": SECRET}}, "properties.sasl.jaas.config", "stream.kafka",
    ),
    "a property that Headgate sets": ({"properties": {"acks": "0"}}, "properties.acks", "is set by Headgate"),
    "a property with a setting": (
        {"properties": {"ssl.ca.location": "x"}}, "properties.ssl.ca.location", "tls.ca_file",
    ),
    "a property beside its block": (
        {"sasl": PLAIN, "properties": {"sasl.mechanism": "GSSAPI"}}, "properties.sasl.mechanism", "set it there",
    ),
    "a protocol beside its block": (
        {"tls": {}, "properties": {"security.protocol": "SASL_SSL"}}, "properties.security.protocol",
        "follows from tls and sasl",
    ),
    "a value that librdkafka refuses": (
        {"properties": {"socket.keepalive.enable": "perhaps"}}, "properties.socket.keepalive.enable", "true or false",
    ),
    "a value that kafka-python refuses": (
        {"properties": {"request_timeout_ms": "5s"}}, "properties.request_timeout_ms", "as its default, 30000",
    ),
    "tokens by properties": (
        {"properties": {"sasl.mechanism": "OAUTHBEARER"}}, "properties.sasl.mechanism", "belongs to the block sasl",
    ),
    "a password by properties": (
        {"properties": {"sasl.password": SECRET}}, "properties.sasl.password", "set the block sasl",
    ),
    "a mechanism that librdkafka was built without": (
        {"properties": {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}}, "properties",
        "recompile librdkafka with libsasl2",
    ),
}  # fmt: skip


class Application(BaseModel):
    """As the settings of the whole application hold it: without hiding inputs of its own."""

    kafka: KafkaConnection


@for_each("case", MISTAKES)
def test_a_mistake_is_told_with_its_place_and_without_the_input(case: str, files: dict[str, str]) -> None:
    blocks, place, message = MISTAKES[case]
    with pytest.raises(ValidationError) as raised:
        Application.model_validate({"kafka": {"bootstrap_servers": SERVERS, **with_paths(blocks, files)}})
    errors = {".".join(map(str, e["loc"])): e["msg"] for e in raised.value.errors()}
    assert message in errors[f"kafka.{place}"]
    told = f"{raised.value} {raised.value!r} {raised.value.errors()} {raised.value.json()}"
    assert SECRET not in told


def test_a_file_that_has_gone_since_is_told(files: dict[str, str]) -> None:
    given = connection(sasl={"mechanism": "PLAIN", "username": "u", "password_file": files["password"]})
    Path(files["password"]).unlink()
    with pytest.raises(UserError, match=r"sasl.password_file: \S+ cannot be read: No such file or directory."):
        given.for_confluent()


@pytest.mark.parametrize(("kind", "remedy"), [("old", "openssl pkcs8 -topk8"), ("pbes2", "PBES2.*-v1 PBE-SHA1-3DES")])
def test_a_key_that_java_cannot_read_is_told_with_the_remedy(
    kind: str, remedy: str, files: dict[str, str], tmp_path: Path
) -> None:
    old = tmp_path / "old.pem"
    subprocess.run(["openssl", "ec", "-in", files["key.pem"], "-out", old], check=True, capture_output=True)
    given = connection(
        tls={"cert_file": files["cert.pem"], "key_file": tmp_path / f"{kind}.pem", "key_password": SECRET}
    )
    with pytest.raises(UserError, match=remedy):
        given.for_spark()
    assert given.for_kafka_python()["ssl_context"]
