"""Wrong settings files as people write them, beside those of `tests/deploy/test_mistakes.py`: each has its remedy."""

from pathlib import Path

import pytest

from deploy.settings.file import load_settings
from policies.units import UserError
from tests.cases import for_each

KAFKA = "kafka: {bootstrap_servers: 'k:1', "
LIMIT = "policies: {throttle: {hard: "
A_COLON = "one colon too many: this line is indented deeper"
QUOTED = "put a value that begins with *, & or ! in quotes"

WRONG = [
    # Braces, quotes, indentation
    ("kafka: {bootstrap_servers: 'x:1'\nhttp: {port: 1}", ":1: the bracket or quote opened here is not closed"),
    ("http: {}\nkafka: {bootstrap_servers: x:1\nhttp: {port: 1}", ":2: the bracket or quote opened here is not closed"),
    ("http: {port: 1}}", ":1: expected <block end>, but found '}'"),
    ('kafka:\n  bootstrap_servers: "x:1\nhttp: {}\n', ":2: the bracket or quote opened here is not closed"),
    ("kafka:\n\tbootstrap_servers: x:1", ":2: found character '\\t' that cannot start any token"),
    ("kafka:\n  bootstrap_servers: x:1\n tls: {}\n", ":3: is indented differently from its block"),
    ("kafka:\n  bootstrap_servers: x:1\n    tls: {}\n", f":3: {A_COLON}"),
    ("---\nhttp: {}\n---\nkafka: {}", ":3: but found another document"),
    ("http: {port: 1}\n\x07", ": contains a control character (U+0007): save it as plain text"),
    ("http:\n\u00a0\u00a0port: 1", ":2: (not a name): no such setting; there is data_dir"),
    (f"policies: {{throttle: {{hard: {{available_bytes_below: {'1' * 200_000}x}}}}}}", "' is not a size: write it as"),
    ("- kafka", ": must contain settings by name, such as `kafka:` or `policies:`"),
    ("http: fast", ":1: http: must contain settings by name, such as http: {host: …}"),
    ("embedded:\n  ports: &a [*a]", ":2: embedded.ports.0: input should be a valid integer"),
    ("embedded:\n  ports: [{a: 1, a: 2}]", ":2: a is set twice"),
    ("kafka:\n  bootstrap_servers: *kafka", f":2: found undefined alias (not shown): {QUOTED}"),
    ("kafka: !!python/object/apply:os.getcwd []", f"a constructor for the tag (not shown): {QUOTED}"),
    # Names
    ("brokers: 3", ":1: brokers: no such setting here; there is embedded.brokers"),
    ("policies:\n  weather: {}", ":2: policies.weather: no such policy in this version; there is throttle, isolation"),
    (
        "policies: {throttle: {clusters: {dev-*: {clusters: {a: {}}}}}}",
        "throttle.clusters.dev-*.clusters: no such setting: overrides contain no further overrides",
    ),
    ("clusters: {2024-13-45: {}}", ":1: looks like a number or a date, and is none"),
    ("policy: {throttle: {}}", ":1: policy: no such setting; did you mean policies?"),
    ("throttle: {hard: {}}", ":1: throttle: no such setting here; there is policies.throttle"),
    ("kafka: {bootstrapServers: 'k:1'}", ":1: kafka.bootstrapServers: no such setting; did you mean bootstrap_"),
    ("http:\n  hots: x", ":2: http.hots: no such setting; did you mean host?"),
    (
        "clusters: {a: {kafka: {bootstrap_servers: 'k:1'}, poll_interval: 5s}}",
        ":1: clusters.a.poll_interval: no such setting here; there is clusters.a.kafka.poll_interval",
    ),
    ("http: {port:9408}", ":1: http.(not a name): no such setting; did you mean port?"),
    ("clusters: {'': {}}", ": a cluster's name has 1 to 249 characters"),
    ("http: {}\nhttp: {}\nkafka: {sasl: {}, sasl: {}}", ":2: http is set twice"),
    # Numbers and units
    (LIMIT + "{available_ratio_below: 15%}}}", "available_ratio_below: input should be a valid number, unable to"),
    ("http: {host: ''}", "http.host: is empty: name the address to listen on: 127.0.0.1, or 0.0.0.0 for all addresses"),
    # Choices and types
    ("policies: {throttle: {mode: shadw}}", "input should be 'active' or 'shadow'"),
    (KAFKA + "sasl: {mechanism: PLAIN, username: u, password: 12345678}}", "kafka.sasl.password: input should be a"),
    (KAFKA + "sasl: {mechanism: PLAIN, username: u, password: 12345678}}", ": put it in quotes"),
    (
        "kafka:\n  bootstrap_servers: k:1\n  properties:\n    client.rack: a\n    client.rak: a",
        ':5: kafka.properties.client.rak: librdkafka: No such configuration property: "client.rak"',
    ),
    ("stream:\n  kafka:\n    group.id: x", ":3: stream.kafka.group.id: is set by the query"),
    (
        KAFKA + "properties: {security.protocol: SASL_PLAINTEXT, sasl.mechanism: SCRAM}}",
        "Unsupported SASL mechanism: SCRAM",
    ),
    (
        KAFKA + "sasl: {mechanism: OAUTHBEARER, token_provider: 'time:time'}}",
        "stream.kafka: the query's Java client cannot derive its login from `kafka`: set sasl.jaas.config",
    ),
    (KAFKA + "sasl: {mechanism: PLAIN, username: u}}", "kafka.sasl.password: mechanism PLAIN needs it (or pass"),
    ("alertmanager: {urls: 'http://a:1'}", "write it as [first, second], even with one entry"),
    ("data_dir: [a]", ":1: data_dir: is no path: write one in quotes"),
    ("clusters: {a: {}}\nClusters: {b: {}}", ":2: Clusters: no such setting; did you mean clusters?"),
    ("data_dir: ''", ":1: data_dir: is empty: name a folder, or leave it out"),
    ("data_dir: ~nobody-of-that-name/x", ":1: data_dir: begins with the home of a user that does not exist"),
    (
        "http: {host: 0.0.0.0, access: {}}",
        ":1: http.access: names no token and no certificate, so every client has access",
    ),
    ("alertmanager: {urls: []}", ":1: alertmanager.urls: is empty: it needs at least one entry"),
    # Addresses and files
    ("kafka: {bootstrap_servers: 'a:1,,b:2'}", "its entry 2 is not host:port"),
    ("clusters: {a: {pulsar: {admin_url: 'http://p/admin/v2'}}}", "must end before /admin/v2"),
    (KAFKA + "tls: {ca_file: /nowhere/ca.pem}}", "kafka.tls.ca_file: /nowhere/ca.pem cannot be read: No such file"),
    # What goes together
    ("clusters:\n  a:\n    kafka:\n      poll_interval: 10s", ":3: clusters.a.kafka.bootstrap_servers: is needed"),
    (
        LIMIT + "{available_bytes_below: 1GB, available_ratio_below: 0.1}}}",
        ":1: policies.throttle.hard: needs exactly one of available_bytes_below and available_ratio_below, has avail",
    ),
    (
        LIMIT + "{available_ratio_below: 0.2}, soft: {available_ratio_below: 0.1}}}",
        ":1: policies.throttle: soft.available_ratio_below (0.1) must lie above hard.available_ratio_below (0.2): prod",
    ),
    (
        "clusters:\n  a:\n    bookies: {}\n    sessions: {}\n    health: {}",
        ":3: clusters.a.bookies: needs zookeeper.servers, too\nF:4: clusters.a.sessions: needs zookeeper.servers, too\n"
        "F:5: clusters.a.health: needs pulsar.admin_url, too",
    ),
    (
        "clusters:\n  a:\n    kafka: {bootstrap_servers: nowhere}\n    bookies: {}",
        ":3: clusters.a.kafka.bootstrap_servers: its entry 1 is not host:port, such as kafka-1.example.org:9092\n"
        "F:4: clusters.a.bookies: needs zookeeper.servers, too",
    ),
    ("clusters: {a: {quotas: {entities: []}}}", "clusters.a.quotas: needs kafka.bootstrap_servers, too"),
]


def told(tmp_path: Path, text: str) -> list[str]:
    """What is said of a file, which is called F."""
    file = tmp_path / "headgate.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as raised:
        load_settings(file)
    return str(raised.value).replace(str(file), "F").splitlines()


@for_each(("text", "says"), WRONG)
def test_a_wrong_file_is_told_with_its_place_and_remedy(tmp_path: Path, text: str, says: str) -> None:
    said = told(tmp_path, text)
    assert says in "\n".join(said)
    assert all(line.startswith("F:") for line in said)


@for_each("text", ["\ufeffhttp: {port: 1}", "http:\r\n  port: 1\r\n", "http: {port: 1} # 15%\n  \n"])
def test_what_editors_do_to_a_file_is_no_mistake(tmp_path: Path, text: str) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(text, newline="")
    assert load_settings(file).http.port == 1


def test_a_mistake_in_what_is_merged_in_has_the_line_where_it_stands(tmp_path: Path) -> None:
    lines = told(tmp_path, "clusters:\n  a: &x\n    kafka: {bootstrap_servers: nowhere}\n  b:\n    <<: *x\n")
    assert [line.split(": ")[0] for line in lines] == ["F:3", "F:3"]


def test_a_list_that_is_short_by_its_mistakes_is_not_another_mistake(tmp_path: Path) -> None:
    members = "{members: [{path: x, role: broker}]}"
    [line] = told(tmp_path, f"clusters: {{a: {{zookeeper: {{servers: 'z:1'}}, sessions: {members}}}}}")
    assert "sessions.members.0.path: string should match pattern" in line


def test_a_home_is_put_in_for_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HEADGATE_DATA_DIR", raising=False)
    file = tmp_path / "headgate.yaml"
    file.write_text("data_dir: ~/headgate")
    assert load_settings(file).data_dir == tmp_path / "headgate"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("HEADGATE_HTTP__PORT", "many", "environment: HEADGATE_HTTP__PORT: input should be a valid integer"),
        ("headgate_http__port", "many", "environment: headgate_http__port: input should be a valid integer"),
        ("HEADGATE_HTTP", '{"port": "many"}', "environment: HEADGATE_HTTP: input should be a valid integer"),
        ("HEADGATE_KAFKA__SASL__PASSWORT", "p", "KAFKA__SASL__PASSWORT: no such setting; did you mean password"),
        ("HEADGATE_POLICIES__THROTLE__MODE", "shadow", "environment: HEADGATE_POLICIES__THROTLE__MODE: no such policy"),
        ("HEADGATE_HTTP__PORT__X", "1", "environment: HEADGATE_HTTP__PORT__X: input should be a valid integer"),
        ("HEADGATE_DATA_DIR", "", "environment: HEADGATE_DATA_DIR: is empty: name a folder, or leave it out"),
        ("HEADGATE_CLUSTERS", "[", "environment: HEADGATE_CLUSTERS: must be JSON that contains settings by name"),
    ],
)
def test_a_wrong_variable_is_told_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError) as raised:
        load_settings(None)
    assert says in str(raised.value)
