"""A settings file's mistakes: all at once, each with its line and path, and never a secret among them."""

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
