"""Settings files and variables: all mistakes at once, each with its line, path and remedy, and never a secret."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from deploy.settings.application import Settings
from deploy.settings.file import load_settings
from policies.throttle import ThrottleSettings
from policies.units import UserError, parse_duration
from tests.cases import for_each

SECRET = "hunter2-and-more"

Written = Callable[[str], Path]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Writes a file that errors call `headgate.yaml`."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> Path:
        file = Path("headgate.yaml")
        file.write_text(dedent(text))
        return file

    return write


def mistakes(file: Path | None) -> list[str]:
    with pytest.raises(UserError) as raised:
        load_settings(file)
    return str(raised.value).splitlines()


def throttle(settings: Settings) -> ThrottleSettings:
    block = settings.policy_settings()["throttle"]
    assert isinstance(block, ThrottleSettings)
    return block


# Good files


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing but a comment\n", "---\n", "{}\n"])
def test_an_empty_file_is_the_defaults(written: Written, text: str) -> None:
    assert load_settings(written(text)) == load_settings(None) == Settings()


@pytest.mark.parametrize(
    ("cluster", "throttle_block", "has_actuator"),
    [
        ("payments", "{}", False),
        ("carried", "{}", True),
        ("elsewhere", "{}", None),
        ("payments", "{has_actuator: true}", True),
        ("payments", '{clusters: {"pay*": {has_actuator: true, fallback_factor: 0.5}}}', True),
        ("payments", '{clusters: {"pay*": {fallback_factor: 0.5}}}', False),
    ],
)
def test_whether_anything_carries_a_factor_out_is_known_of_watched_clusters(
    written: Written, cluster: str, throttle_block: str, has_actuator: bool | None
) -> None:
    file = written(f"""\
        clusters:
          payments: {{kafka: {{bootstrap_servers: "kafka-1:9092"}}}}
          carried:
            kafka: {{bootstrap_servers: "kafka-1:9092"}}
            quotas: {{entities: [{{client_id: default, base: 10MB}}]}}
        policies:
          throttle: {throttle_block}
    """)
    own = throttle(load_settings(file)).for_cluster(cluster)
    assert own.has_actuator is has_actuator
    assert own.fallback_factor == (0.5 if "fallback" in throttle_block else 1.0)


# Bad files

HTTPS = {"admin_url": "https://p:8443"}


@pytest.mark.parametrize("block", ["health", "unload"])
@pytest.mark.parametrize(
    ("pulsar", "url", "good"),
    [
        pytest.param({**HTTPS, "token": SECRET}, None, False, id="a token, and a default in the clear"),
        pytest.param({**HTTPS, "token": SECRET}, "https://{host}:8443", True, id="a token, encrypted"),
        pytest.param({**HTTPS, "token": SECRET}, "http://{member}", True, id="a token, in the clear on purpose"),
        pytest.param(HTTPS, None, True, id="no token"),
        pytest.param({"admin_url": "http://p:8080", "token": SECRET}, None, True, id="all in the clear on purpose"),
    ],
)
def test_a_token_goes_in_the_clear_only_where_the_settings_say_so(
    written: Written, block: str, pulsar: dict[str, str], url: str | None, good: bool
) -> None:
    cluster = {"pulsar": pulsar, block: {} if url is None else {"member_url": url}}
    file = written(yaml.safe_dump({"clusters": {"c1": cluster}}))
    if good:
        load_settings(file)
    else:
        (said,) = mistakes(file)
        assert f"{block}.member_url: would send the token over plain http" in said
        assert SECRET not in said


@pytest.mark.parametrize(
    ("admin_url", "refused"),
    [("http://pulsar:8080", ["0.0.0.0:8080", "localhost:8080"]), ("http://127.0.0.1:8080", ["0.0.0.0:8080"])],
)
def test_a_member_that_is_asked_has_an_address_of_its_own(written: Written, admin_url: str, refused: list[str]) -> None:
    health = {"members": ["0.0.0.0:8080", "localhost:8080", "b1:8080"]}
    cluster = {"pulsar": {"admin_url": admin_url}, "health": health}
    said = mistakes(written(yaml.safe_dump({"clusters": {"c1": cluster}})))
    assert [line.partition("health.members: ")[2].partition(" is a")[0] for line in said] == refused


def test_all_mistakes_are_told_at_once(written: Written) -> None:
    file = written("""\
        kafka:
          bootstrap_servers: nowhere
        http:
          port: -1
          hots: 0.0.0.0
        policies:
          throttle:
            validity: 0s
            clusters:
              dev-*: {min_hold: soon}
        stream: {shuffle_partitions: 0}
    """)
    assert [line.split(": ", 2)[:2] for line in mistakes(file)] == [
        ["headgate.yaml:2", "kafka.bootstrap_servers"],
        ["headgate.yaml:4", "http.port"],
        ["headgate.yaml:5", "http.hots"],
        ["headgate.yaml:8", "policies.throttle.validity"],
        ["headgate.yaml:10", "policies.throttle.clusters.dev-*.min_hold"],
        ["headgate.yaml:11", "stream.shuffle_partitions"],
    ]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    text = tmp_path / "headgate.yaml"
    text.write_bytes(b"kafka: \xff")
    assert mistakes(text) == [f"{text}: cannot be read (not UTF-8 text): save it as UTF-8"]
    assert mistakes(tmp_path) == [f"{tmp_path}: cannot be read (Is a directory)"]
    assert mistakes(tmp_path / "x") == [f"{tmp_path / 'x'}: cannot be read (No such file or directory)"]


def test_executors_elsewhere_must_reach_the_loops_kafka(written: Written) -> None:
    here = "kafka: {{bootstrap_servers: '{0}'}}\nstream: {{master: yarn, checkpoint_dir: 'hdfs://n:8020/h'}}\n"
    (mistake,) = mistakes(written(here.format("127.0.0.1:9092,localhost:9093")))
    assert "127.0.0.1:9092,localhost:9093 cannot be reached by executors of yarn" in mistake
    load_settings(written(here.format("127.0.0.1:9092,kafka-1:9092")))


def test_a_checkpoint_that_is_elsewhere_is_no_folder_of_ours(written: Written) -> None:
    given = load_settings(written("stream: {checkpoint_dir: 'hdfs://n:8020/headgate'}"))
    assert given.checkpoint().uri == "hdfs://n:8020/headgate"
    with pytest.raises(UserError, match="hdfs://n:8020/headgate is no folder of this machine"):
        given.checkpoint_dir()


# Secrets

LEAKS = {
    "in a property of Spark's": f"stream: {{spark: {{spark.authenticate.secret: {SECRET}}}}}",
    "in a property's name": f"stream: {{spark: {{password:{SECRET}: 1}}}}",
    "in a property that is a block": f"stream: {{spark: {{spark.x: {{password: {SECRET}}}}}}}",
    "under a mistyped name": f"kafka: {{bootstrap_servers: 'k:1', sasl: {{pasword: {SECRET}}}}}",
    "one level too high": f"kafka: {{bootstrap_servers: 'k:1', password: {SECRET}}}",
    "at the top": f"password: {SECRET}",
    "as the whole block": f"kafka: {{bootstrap_servers: 'k:1', sasl: {SECRET}}}",
    "as a list": f"kafka: {{bootstrap_servers: 'k:1', sasl: {{mechanism: PLAIN, password: [{SECRET}]}}}}",
    "next to a mistake": f"kafka: {{bootstrap_servers: 'k:1', sasl: {{mechanism: MAGIC, password: {SECRET}}}}}",
    "next to what is missing": f"kafka: {{bootstrap_servers: 'k:1', sasl: {{mechanism: PLAIN, password: {SECRET}}}}}",
    "of a watched cluster": f"clusters: {{payments: {{kafka: {{sasl: {{password: {SECRET}}}}}}}}}",
    "in the servers": f"kafka: {{bootstrap_servers: 'user:{SECRET}@kafka'}}",
    "in a token endpoint": f"kafka: {{bootstrap_servers: 'k:1', sasl: {{token_endpoint: 'https://u:{SECRET}@idp/'}}}}",
    "in a broken line": f"kafka:\n  sasl: {{password: {SECRET}\nhttp: {{}}",
    "after a stray quote": f'kafka:\n  sasl:\n    password: "{SECRET}\nhttp: {{}}',
    "after an alias sign": f"kafka:\n  sasl:\n    password: *{SECRET}",
    "after an ampersand, twice": f"kafka:\n  sasl:\n    password: &{SECRET}\n    username: *{SECRET}x",
    "after a tag sign": f"kafka:\n  sasl:\n    password: !{SECRET}",
    "after a tag's signs": f"kafka:\n  sasl:\n    password: !{SECRET}!x",
    "without a space": f"kafka: {{bootstrap_servers: 'k:1', sasl: {{mechanism: PLAIN, password:{SECRET}}}}}",
    "without a space, twice": f"kafka: {{sasl: {{password:{SECRET}, password:{SECRET}}}}}",
    "set twice": f"kafka:\n  sasl:\n    password: {SECRET}\n    password: {SECRET}",
    "instead of a file name": f"kafka: {{bootstrap_servers: 'k:1', sasl: {{mechanism: PLAIN, username: u, "
    f"password: {SECRET}, password_file: /nowhere}}}}",
}


@for_each("text", LEAKS.values(), ids=LEAKS.keys())
def test_a_secret_is_never_shown(written: Written, text: str) -> None:
    said = mistakes(written(text))
    assert said
    assert SECRET not in "\n".join(said)


def test_a_good_file_shows_no_secret_either(written: Written) -> None:
    sasl = f"{{mechanism: PLAIN, username: headgate, password: {SECRET}}}"
    settings = load_settings(written(f"kafka: {{bootstrap_servers: 'k:9092', sasl: {sasl}}}"))
    assert settings.loop_kafka().for_confluent()["sasl.password"] == SECRET
    assert SECRET not in repr(settings) + str(settings) + settings.model_dump_json()


# The environment


def test_the_environment_wins_over_the_file(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written("""\
        kafka: {bootstrap_servers: "file:9092", sasl: {mechanism: SCRAM-SHA-512, username: headgate}}
        http: {port: 1000, host: 0.0.0.0}
    """)
    monkeypatch.setenv("HEADGATE_KAFKA__SASL__PASSWORD", SECRET)
    monkeypatch.setenv("HEADGATE_HTTP__PORT", "2000")
    settings = load_settings(file)
    assert settings.loop_kafka().for_confluent()["sasl.password"] == SECRET
    assert settings.loop_kafka().servers() == ["file:9092"]
    assert (settings.http.port, settings.http.host) == (2000, "0.0.0.0")


def test_the_environment_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_KAFKA__BOOTSTRAP_SERVERS", "env:9092")
    monkeypatch.setenv("HEADGATE_POLICIES__THROTTLE__HARD__AVAILABLE_BYTES_BELOW", "1GB")
    settings = load_settings(None)
    assert settings.loop_kafka().servers() == ["env:9092"]
    assert throttle(settings).hard is not None


def test_a_cluster_with_capitals_is_named_by_variables_too(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(
        "clusters: {Payments: {kafka: {bootstrap_servers: 'k:1'}}}\n"
        "policies: {throttle: {clusters: {'Pay*': {min_hold: 1s}}}}"
    )
    monkeypatch.setenv("HEADGATE_CLUSTERS__PAYMENTS__KAFKA__POLL_INTERVAL", "20s")
    monkeypatch.setenv("HEADGATE_POLICIES__THROTTLE__CLUSTERS__PAY*__MIN_HOLD", "7s")
    settings = load_settings(file)
    assert list(settings.clusters) == ["Payments"]
    assert settings.clusters["Payments"].kafka.poll_interval == parse_duration("20s")
    assert settings.policies.throttle.for_cluster("Payments").min_hold == parse_duration("7s")


def test_of_two_clusters_that_differ_in_capitals_alone_a_variable_names_neither(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written("clusters: {Pay: {kafka: {bootstrap_servers: 'k:1'}}, PAY: {kafka: {bootstrap_servers: 'k:2'}}}")
    monkeypatch.setenv("HEADGATE_CLUSTERS__PAY__KAFKA__POLL_INTERVAL", "20s")
    variable = "HEADGATE_CLUSTERS__PAY__KAFKA__POLL_INTERVAL"
    assert mistakes(file) == [f"environment: {variable}: clusters.pay.kafka.bootstrap_servers: is needed"]


@pytest.mark.parametrize("name", ["HEADGATE_KAFKA__SASL__PASSWORT", "HEADGATE_KAFKA__SASL", "HEADGATE_KAFKA"])
def test_a_secret_in_a_wrong_place_of_the_environment_is_not_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, SECRET)
    assert SECRET not in "\n".join(mistakes(None))


def test_the_loops_kafka_must_be_set_where_it_is_needed() -> None:
    with pytest.raises(UserError, match=r"kafka.bootstrap_servers is not set: .*HEADGATE_KAFKA__BOOTSTRAP_SERVERS"):
        load_settings(None).loop_kafka()


def test_the_checkpoint_lies_in_the_data_dir_unless_told_otherwise(written: Written) -> None:
    assert load_settings(written("data_dir: /srv/headgate")).checkpoint_dir() == Path("/srv/headgate/checkpoint")
    assert load_settings(written("stream: {checkpoint_dir: /srv/state}")).checkpoint_dir() == Path("/srv/state")


def test_the_fingerprint_changes_with_any_setting_but_a_secret(written: Written) -> None:
    def fingerprint(password: str, port: int = 1) -> str:
        sasl = f"{{mechanism: PLAIN, username: u, password: {password}}}"
        text = f"kafka: {{bootstrap_servers: 'k:1', sasl: {sasl}}}\nhttp: {{port: {port}}}"
        return load_settings(written(text)).fingerprint()

    assert fingerprint("one") == fingerprint("two") != fingerprint("one", port=2)


@pytest.mark.parametrize("place", ["/proc/nope", __file__], ids=["cannot be made", "is a file"])
def test_a_data_folder_that_cannot_be_used_is_named(place: str) -> None:
    with pytest.raises(UserError, match=r"data_dir: .* cannot be made .*; name another folder"):
        Settings(data_dir=Path(place)).create_data_dir()


@for_each(
    ("name", "holds", "mode"),
    [("new", None, 0o700), ("empty", "", 0o700), ("used", "spark.log", 0o700), ("shared", "of-others", 0o1777)],
)
def test_the_data_folder_is_for_our_own_user_alone_unless_it_holds_others_data(
    tmp_path: Path, name: str, holds: str | None, mode: int
) -> None:
    folder = tmp_path / name
    if holds is not None:
        (folder / holds).mkdir(parents=True)
        folder.chmod(0o1777)
    Settings(data_dir=folder).create_data_dir()
    assert folder.stat().st_mode & 0o7777 == mode


@for_each("value", ["[" * 100_000, '{"a":' * 5000, "9" * 5000, "no JSON", "\udc80"])
def test_a_variable_that_is_no_block_is_told_and_not_quoted(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HEADGATE_CLUSTERS", value)
    (said,) = mistakes(None)
    assert said.startswith("environment: ")
    assert value[:5] not in said


# Wrong files as people write them, beside those of tests/deploy/test_mistakes.py: each has its remedy.

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
    (
        KAFKA + "sasl: {mechanism: PLAIN, username: u, password: 12345678}}",
        "kafka.sasl.password: input should be a",
    ),
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
