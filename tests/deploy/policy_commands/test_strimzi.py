"""Import of the Strimzi quotas plugin's properties: what it maps, and what it refuses as the plugin does."""

from pathlib import Path

import pytest
import yaml

from deploy.policy_commands.strimzi import Imported, import_properties
from deploy.settings.application import Settings
from policies.units import UserError
from tests.cases import for_each

P = "client.quota.callback.static."
LIMIT = f"{P}storage.per.volume.limit.min.available"
DRAFT = f"{P}storage.perVolumeLimit"
SOFT = f"{DRAFT}.availableBytesBelow.soft=1"
CLUSTER = f"{P}storage.volume.source=cluster"
ADMIN = f"{P}kafka.admin."
ADMIN_OF_DRAFT = "client.quota.callback.kafka.admin."


def read(*lines: str) -> Imported:
    return import_properties("\n".join(lines).encode(), "f")


def test_the_released_plugins_keys_become_settings() -> None:
    text = f"""
        client.quota.callback.class=io.strimzi.kafka.quotas.StaticQuotaCallback
        {P}kafka.admin.bootstrap.servers=kafka:9092
        {P}produce=1000000
        {P}storage.check-interval=10
        {LIMIT}.bytes=1073741824
        {P}throttle.factor.fallback=0.3
        {P}throttle.factor.validity.duration=PT2M30S
        {P}excluded.principal.name.list=User:alice
    """
    imported = import_properties(text.encode(), "f")
    assert imported.settings == {
        "kafka": {"bootstrap_servers": "CHANGE-ME:9092"},
        "clusters": {
            "imported": {
                "kafka": {"bootstrap_servers": "kafka:9092", "poll_interval": "10s"},
                "quotas": {"entities": [{"client_id": "default", "base": 1000000}], "exclude": ["alice"]},
            }
        },
        "policies": {
            "throttle": {
                "preset": "strimzi",
                "hard": {"available_bytes_below": 1073741824},
                "fallback_factor": 0.3,
                "validity": "2m30s",
            }
        },
    }
    notes = "\n".join(imported.notes)
    assert "produce=1000000" in notes
    assert "It should be another cluster than the watched one" in notes
    assert "Remove client.quota.callback.class from the brokers" in notes
    assert yaml.safe_load(imported.as_yaml()) == imported.settings


def test_the_drafts_soft_and_hard_limits_of_different_kinds_become_settings() -> None:
    limits = (f"{DRAFT}.availableBytesBelow.soft=5000000000", f"{DRAFT}.availableRatioBelow.hard=0.01")
    imported = yaml.safe_load(read(*limits, f"{P}fallback.throttle.factor=0.0", CLUSTER).as_yaml())
    Settings(**imported)
    assert imported["policies"]["throttle"] == {
        "preset": "strimzi", "soft": {"available_bytes_below": 5000000000}, "hard": {"available_ratio_below": 0.01},
        "fallback_factor": 0.0,
    }  # fmt: skip


@for_each(
    ("lines", "said"),
    [
        pytest.param([f"{LIMIT}.bytes=1", f"{LIMIT}.ratio=0.1"], "more than one hard limit", id="two hard"),
        pytest.param([f"{LIMIT}.bytes=1", f"{DRAFT}.availableRatioBelow.hard=0.1"], "more than one hard", id="mixed"),
        pytest.param([SOFT, f"{DRAFT}.availableRatioBelow.soft=0.1"], "more than one soft limit", id="two soft"),
        pytest.param([f"{LIMIT}.ratio=NaN"], "hard.available_ratio_below: .* a finite number", id="NaN"),
        pytest.param([f"{LIMIT}.bytes=-1"], "it is never negative", id="negative bytes"),
        pytest.param([f"{LIMIT}.ratio=-0.1"], "greater than or equal to 0", id="negative ratio"),
        pytest.param([f"{LIMIT}.ratio=1.1"], "less than or equal to 1", id="ratio above 1"),
        pytest.param([f"{LIMIT}.bytes=plenty"], "must be a number", id="no number"),
        pytest.param([f"{P}throttle.factor.fallback=2"], "fallback_factor: .* or equal to 1", id="fallback above 1"),
        pytest.param([f"{P}throttle.factor.validity.duration=5m"], "ISO 8601", id="validity"),
        pytest.param([f"{P}throttle.factor.validity.duration=-PT5M"], "ISO 8601", id="negative validity"),
        pytest.param([f"{P}throttle.factor.validity.duration=PT0S"], "ISO 8601", id="no validity"),
        pytest.param([f"{LIMIT}.bytes=1e3"], "available_bytes_below: 1000.0 is not a size", id="a fraction of a byte"),
        pytest.param([f"{LIMIT}.bytes=\\u00"], r"Invalid \\u escape sequence: \\u00", id="half an escape"),
        pytest.param([f"{P}storage.check-interval=often"], "whole number of seconds", id="interval"),
        pytest.param([f"{LIMIT}.bytes=1", f"{P}storage.volume.source=local"], "local allows no", id="local source"),
        pytest.param([SOFT, f"{DRAFT}.availableBytesBelow.hard=2"], "must lie above", id="order"),
        pytest.param([f"{P}storage.volume.source=both"], "both: must be local or cluster", id="unknown source"),
        pytest.param([f"{DRAFT}.availableBytesBelow.hard=2"], r"source=local \(the draft's default", id="no source"),
        pytest.param([CLUSTER, f"{P}storage.hard=5"], r"storage\.hard is refused", id="used bytes of a cluster"),
        pytest.param([CLUSTER, f"{P}storage.soft=5"], r"storage\.soft is refused", id="soft used bytes of a cluster"),
        pytest.param([f"{LIMIT}.bytes=1", f"{ADMIN}security.protocol=TLS"], "must be one of PLAINTEXT", id="protocol"),
        pytest.param([f"{LIMIT}.bytes=1", f"{ADMIN}security.protocol=SASL_SSL"], "GSSAPI.*create a user", id="GSSAPI"),
        pytest.param([f"{P}excluded.principal.name.list=default"], "name users one by one", id="all users excluded"),
        pytest.param(["log.dirs=/data"], "the quotas plugin is not configured", id="no plugin"),
        pytest.param([f"{LIMIT}.byts=1"], "no key of the plugin; did you mean storage.per.*bytes", id="misspelt limit"),
        pytest.param([f"{P}throttle.factor.fallbak=1"], "did you mean throttle.factor.fallback", id="misspelt factor"),
    ],
)
def test_what_the_plugin_refuses_is_refused(lines: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        import_properties("\n".join(lines).encode(), "server.properties")
    assert str(refused.value).startswith("server.properties: ")


def test_every_refusal_shows_at_once() -> None:
    with pytest.raises(UserError) as refused:
        import_properties(f"{LIMIT}.bytes=-1\n{P}throttle.factor.fallback=7".encode(), "f")
    assert len(str(refused.value).splitlines()) == 2


def test_what_stands_in_a_value_is_a_comment_whatever_it_holds() -> None:
    imported = import_properties(f"{LIMIT}.bytes=1\n{P}produce=5\\nhttp: {{port: 1}}\\r\\u2028".encode(), "f")
    assert yaml.safe_load(imported.as_yaml()) == imported.settings


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_file_is_read_in_either_encoding_that_brokers_have(encoding: str) -> None:
    lines = f"# für alle\n{LIMIT}.bytes=1\n{P}excluded.principal.name.list=User:jürgen"
    cluster = import_properties(lines.encode(encoding), "f").settings["clusters"]["imported"]
    assert cluster["quotas"] == {"entities": [{"client_id": "default"}], "exclude": ["jürgen"]}


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("User:CN=kafka,O=io.strimzi;User:alice", ["CN=kafka,O=io.strimzi", "alice"]),
        ("User:CN=kafka,O=io.strimzi, User:alice", ["CN=kafka,O=io.strimzi", "alice"]),
        ("User:OU=x,2.5.4.97=#0c02,CN=relay;User:canary", ["OU=x,2.5.4.97=#0c02,CN=relay", "canary"]),
        (r"User:CN=relay,L=St. Gallen\\, West,C=CH;User:canary", [r"CN=relay,L=St. Gallen\, West,C=CH", "canary"]),
        ("User:a,b", ["a,b"]),
        ("CN=a,O=b", ["CN=a,O=b"]),
        ("alice,bob", ["alice", "bob"]),
    ],
)
def test_commas_belong_to_the_name_behind_user_and_beside_a_semicolon(value: str, names: list[str]) -> None:
    imported = import_properties(f"{LIMIT}.bytes=1\n{P}excluded.principal.name.list={value}".encode(), "f")
    assert imported.settings["clusters"]["imported"]["quotas"]["exclude"] == names


RESOURCE = """
apiVersion: v1
kind: ConfigMap
---
apiVersion: kafka.strimzi.io/v1beta2
kind: Kafka
metadata: {name: payments}
spec:
  kafka:
    config: {min.insync.replicas: 2}
    quotas:
      type: strimzi
      producerByteRate: 1000000
      minAvailableBytesPerVolume: 5000000000
      excludedPrincipals: ["User:CN=relay,O=x", "User:canary"]
"""


@for_each("text", [RESOURCE, yaml.safe_dump({"kind": "List", "items": list(yaml.safe_load_all(RESOURCE))})])
def test_the_quotas_of_a_kafka_resource_become_settings(text: str) -> None:
    settings = import_properties(text.encode(), "kafka.yaml").settings
    assert settings["policies"]["throttle"] == {"preset": "strimzi", "hard": {"available_bytes_below": 5000000000}}
    assert settings["clusters"]["imported"]["quotas"] == {
        "entities": [{"client_id": "default", "base": 1000000}],
        "exclude": ["CN=relay,O=x", "canary"],
    }


def test_the_config_of_a_kafka_resource_becomes_settings() -> None:
    text = f"kind: Kafka\nspec: {{kafka: {{config: {{{LIMIT}.ratio: '0.1', {P}storage.check-interval: 10}}}}}}"
    settings = import_properties(text.encode(), "kafka.yaml").settings
    assert settings["policies"]["throttle"]["hard"] == {"available_ratio_below": 0.1}
    assert settings["clusters"]["imported"]["kafka"]["poll_interval"] == "10s"


@for_each(
    ("spec", "said"),
    [
        ("{kafka: {}}", "it has neither quotas nor the plugin's keys: the quotas plugin is not configured"),
        ("{kafka: {quotas: {type: kafka, producerByteRate: 5}}}", "spec.kafka.quotas.type: kafka is not the plugin"),
        (
            "{kafka: {quotas: {type: strimzi, producerByteRat: 5}}}",
            "no field of the plugin; did you mean producerByteRate",
        ),
    ],
)
def test_a_kafka_resource_without_the_plugin_is_refused(spec: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        import_properties(f"kind: Kafka\nspec: {spec}".encode(), "kafka.yaml")


def test_an_unknown_key_of_the_plugin_is_named() -> None:
    assert any("weather" in note for note in read(f"{P}weather=1").notes)


@for_each(
    ("lines", "interval"),
    [
        pytest.param([f"{LIMIT}.bytes=1", f"{P}storage.check-interval=90"], "1m30s", id="released: seconds"),
        pytest.param([CLUSTER, f"{P}storage.check-interval=10000"], "10s", id="draft: milliseconds"),
        pytest.param([CLUSTER, f"{P}storage.check-interval=500"], "500ms", id="draft: half a second"),
        pytest.param([CLUSTER, f"{LIMIT}.bytes=1", f"{P}storage.check-interval=5"], "5s", id="both: the released one"),
        pytest.param([CLUSTER, f"{P}storage.check-interval=0"], "1m", id="switched off"),
        pytest.param([f"{LIMIT}.bytes=1"], "1m", id="not set"),
    ],
)
def test_the_interval_has_the_unit_of_its_generation(lines: list[str], interval: str) -> None:
    assert read(*lines).settings["clusters"]["imported"]["kafka"]["poll_interval"] == interval


JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\\\"ice" password="s3cret-word";'


@pytest.mark.parametrize("prefix", [ADMIN, ADMIN_OF_DRAFT])
def test_the_admin_clients_keys_become_the_connection_and_no_secret_is_printed(prefix: str, tmp_path: Path) -> None:
    authorities, identity = tmp_path / "ca.pem", tmp_path / "headgate.pem"
    authorities.touch()
    identity.touch()
    imported = read(
        f"{LIMIT}.bytes=1",
        f"{prefix}bootstrap.servers=SASL_SSL://one:9093,two:9093",
        f"{prefix}security.protocol=SASL_SSL",
        f"{prefix}ssl.truststore.type=PEM",
        f"{prefix}ssl.truststore.location={authorities}",
        f"{prefix}ssl.keystore.type=PEM",
        f"{prefix}ssl.keystore.location={identity}",
        f"{prefix}ssl.key.password=other-s3cret-word",
        f"{prefix}ssl.endpoint.identification.algorithm=",
        f"{prefix}sasl.mechanism=SCRAM-SHA-512",
        f"{prefix}sasl.jaas.config={JAAS}",
        f"{prefix}request.timeout.ms=5000",
    )
    kafka = imported.settings["clusters"]["imported"]["kafka"]
    files = {"ca_file": str(authorities), "cert_file": str(identity), "key_file": str(identity)}
    assert kafka == {
        "bootstrap_servers": "one:9093,two:9093",
        "tls": {**files, "verify_hostname": False},
        "sasl": {"mechanism": "SCRAM-SHA-512", "username": 'al"ice'},
        "poll_interval": "1m",
    }
    assert "s3cret-word" not in imported.as_yaml()
    notes = "\n".join(imported.notes)
    assert "HEADGATE_CLUSTERS__IMPORTED__KAFKA__SASL__PASSWORD" in notes
    assert "kafka.admin.request.timeout.ms: left out" in notes
    kafka["sasl"]["password"] = "anything"
    Settings(**imported.settings)


def test_a_client_of_oauth_keeps_its_id_scope_and_endpoint() -> None:
    imported = read(
        f"{LIMIT}.bytes=1",
        f"{ADMIN}security.protocol=SASL_PLAINTEXT",
        f"{ADMIN}sasl.mechanism=OAUTHBEARER",
        f"{ADMIN}sasl.oauthbearer.token.endpoint.url=https://tokens.example.org/token",
        f"{ADMIN}sasl.jaas.config=x.OAuthBearerLoginModule required clientId='headgate' clientSecret=hush scope=kafka;",
    )
    assert imported.settings["clusters"]["imported"]["kafka"]["sasl"] == {
        "mechanism": "OAUTHBEARER",
        "client_id": "headgate",
        "scope": "kafka",
        "token_endpoint": "https://tokens.example.org/token",
    }
    assert any("SASL__CLIENT_SECRET" in note for note in imported.notes)
    assert "hush" not in imported.as_yaml()


def test_a_login_of_one_endless_word_is_read_in_proportion_to_its_length() -> None:
    """An expression that may begin anywhere in a word needs hours."""
    login = (f"{ADMIN}security.protocol=SASL_SSL", f"{ADMIN}sasl.mechanism=PLAIN")
    imported = read(f"{LIMIT}.bytes=1", *login, f"{ADMIN}sasl.jaas.config={'a' * 500_000}")
    assert imported.settings["clusters"]["imported"]["kafka"]["sasl"] == {"mechanism": "PLAIN"}


def test_a_key_store_that_is_not_pem_is_to_be_converted() -> None:
    stores = (f"{ADMIN}ssl.truststore.location=/tmp/trust.jks", f"{ADMIN}ssl.keystore.location=/tmp/key.p12")
    imported = read(f"{LIMIT}.bytes=1", f"{ADMIN}security.protocol=SSL", *stores)
    assert imported.settings["clusters"]["imported"]["kafka"]["tls"] == {
        "ca_file": "/tmp/trust.jks.pem",
        "cert_file": "/tmp/key.p12.pem",
        "key_file": "/tmp/key.p12.pem",
    }
    notes = "\n".join(imported.notes)
    assert "keytool -list -rfc -keystore /tmp/trust.jks > /tmp/trust.jks.pem" in notes
    assert "openssl pkcs12 -in /tmp/key.p12 -out /tmp/key.p12.pem" in notes


def test_keys_that_kafka_ignores_without_encryption_are_left_out_and_told() -> None:
    imported = read(f"{LIMIT}.bytes=1", f"{ADMIN}ssl.truststore.location=/t.jks")
    assert "tls" not in imported.settings["clusters"]["imported"]["kafka"]
    assert any("without security.protocol=SSL" in note for note in imported.notes)
