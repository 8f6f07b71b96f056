"""`headgate check`: what is allowed and hardly meant, and the settings in force."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from deploy.cli import _run_guarded
from deploy.commands.root import app
from deploy.settings.file import load_settings
from policies.units import UserError
from tests.cases import for_each

SECRET = "hunter2-and-more"
WATCHED = "clusters: {payments: {kafka: {bootstrap_servers: 'k:1'}}}\n"
LIMITED = "policies: {throttle: {hard: {available_bytes_below: 1GB}}}\n"
DISKS = "clusters: {a: {pulsar: {admin_url: 'http://p'}, bookie_disks: {bookie_url: 'http://b'}}}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "headgate.yaml"


def check(*arguments: str | Path) -> tuple[str, str]:
    """What is printed, and what on standard error; a mistake is raised."""
    result = CliRunner().invoke(app, ["check", *map(str, arguments)])
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def warnings(file: Path) -> list[str]:
    said = check(file)[0].replace(f"{file}:", "").replace(str(file), "")
    return [line.removeprefix("warning:").strip() for line in said.splitlines() if line.startswith("warning:")]


def test_good_settings_have_no_warning(file: Path) -> None:
    file.write_text(WATCHED + LIMITED)
    assert check(file)[0] == f"{file} is good: payments watched.\n"


DOUBTS = [
    (WATCHED + LIMITED.replace("hard", "soft: , hard"), "2: policies.throttle.soft: is empty and therefore off"),
    (
        WATCHED + LIMITED[:-3] + ", clusters: {payments: {hard: {available_bytes_below: 2000}}}}}",
        "2: policies.throttle.clusters.payments.hard.available_bytes_below: is 2.0 kB, which a disk passes in a moment",
    ),
    (WATCHED + LIMITED + "http: {host: '::'}", "3: http.host: serves status page, API and metrics to everybody"),
    (
        "clusters: {a: {zookeeper: {servers: 'z:1', user: u, password: x}}}",
        "1: clusters.a.zookeeper.password: is a secret in this file: put it into a file of its own (password_file)",
    ),
    (
        "clusters:\n  a:\n    kafka: {bootstrap_servers: 'k:1'}\n    quotas: {entities: [{user: u}]}",
        "4: clusters.a.quotas: carries nothing out: policies.throttle has no limit for it; set hard:",
    ),
    (
        WATCHED + LIMITED[:-3] + ", clusters: {'dev-*': {}}}}",
        "policies.throttle.clusters.dev-*: matches no cluster and has no effect; there is payments",
    ),
    (
        WATCHED + LIMITED[:-3] + ", clusters: {'*': {}, payments: {}}}}",
        "policies.throttle.clusters.payments: is never in force: * is before it, and the first match wins",
    ),
    (
        "clusters: {a: {zookeeper: {servers: 'z:1'}, sessions: {poll_interval: 10m}}}",
        "1: clusters.a.sessions.poll_interval: 10m is not shorter than policies.sessions.validity (5m)",
    ),
    (
        "clusters: {a: {zookeeper: {servers: 'zk:1'}, bookies: {}}}\npolicies: {isolation: {validity: 30s}}",
        "1: clusters.a.bookies.affinity_interval: 30s is not shorter than policies.isolation.validity (30s)",
    ),
    (
        "clusters: {a: {kafka: {bootstrap_servers: 'k:1'}, quotas: {entities: [{client_id: '*', base: 1MB}]}}}\n"
        + LIMITED,
        "1: clusters.a.quotas.entities: `*` is a name like any other for Kafka: write default for all",
    ),
    (
        "kafka: {bootstrap_servers: 'l:1,k:1', sasl: {mechanism: SCRAM-SHA-512, username: hg, password: p}}\n"
        "clusters: {a: {kafka: {bootstrap_servers: 'k:1'}, quotas: {entities: [{client_id: default, base: 1MB}]}}}\n"
        + LIMITED,
        "2: clusters.a.quotas: slows Headgate down, too, whose topics are on the same Kafka: use another one, or set "
        "exclude: [hg]",
    ),
    (
        f"kafka: {{bootstrap_servers: 'l:1,k:1'}}\n{WATCHED}{LIMITED}",
        "1: kafka.bootstrap_servers: is the watched payments: Headgate's topics stand on the disks that it guards, and "
        "a full one stops it; to try it that will do, with topics.replication_factor: 3 if it has the brokers",
    ),
    (
        DISKS + "policies: {bookie_disks: {hard: {available_ratio_below: 0.10}}}",
        "2: policies.bookie_disks.hard: 10% free is not above 10%, where a bookie suspends compaction by default",
    ),
    (
        DISKS.replace("'http://b'", "'http://b', poll_interval: 5m"),
        "1: clusters.a.bookie_disks.poll_interval: 5m is not shorter than policies.bookie_disks.validity (5m)",
    ),
    (
        "clusters: {zürich: {pulsar: {admin_url: 'http://p'}, unload: {}}}",
        "1: clusters.zürich.unload: has nothing to do: set clusters.zürich.ownership, too",
    ),
    (
        WATCHED + "policies: {throttle: {hard: {available_bytes_below: 1GB}}, isolation: {quarantine: on}}",
        "2: policies.isolation.quarantine: quarantines nothing: no bookies are watched; set clusters.payments.bookies",
    ),
    (
        "clusters: {a: {kafka: {bootstrap_servers: 'k:1,l:1'}}, b: {kafka: {bootstrap_servers: 'l:1,k:1'}}}\n"
        + LIMITED,
        "1: clusters.b.kafka.bootstrap_servers: names the brokers of a",
    ),
    (
        "clusters:\n  a:\n    zookeeper: {servers: 'z:1'}\n    bookies:\n",
        "4: clusters.a.bookies: is empty and therefore off: write {} to turn it on",
    ),
    (
        "kafka: {bootstrap_servers: 'k:1', sasl: {mechanism: PLAIN, username: u, password: '${KAFKA_PASWORD}'}}",
        "1: kafka.sasl.password: contains a variable, which is not expanded here: set HEADGATE_KAFKA__SASL__PASSWORD "
        "instead",
    ),
    ("data_dir: $HEADGATE_HOME", "1: data_dir: contains a variable, which is not expanded here: set HEADGATE_DATA_DIR"),
    ("data_dir: '" + "${" * 100_000 + "X}'", "1: data_dir: contains a variable"),  # hostile, and read in linear time
    (
        "kafka: {bootstrap_servers: 'k:1', sasl: {mechanism: PLAIN, username: u, password: p}}",
        "1: kafka.sasl: sends the password unencrypted: set tls: {}, or use SCRAM-SHA-512",
    ),
    (
        "kafka: {bootstrap_servers: 'k:1', tls: {}, properties: {ssl.keystore.password: p}}",
        "1: kafka.properties.ssl.keystore.password: is a secret in this file: set HEADGATE_KAFKA__PROPERTIES to JSON",
    ),
]


@for_each(
    ("policy", "limit", "watched"),
    [
        ("throttle", "hard", WATCHED),
        ("throttle", "soft", ""),  # for a replay
        ("bookie_disks", "soft", ""),
    ],
)
def test_a_margin_that_no_volume_can_clear_is_refused(file: Path, policy: str, limit: str, watched: str) -> None:
    ratio = f"{limit}: {{available_ratio_below: 0.95}}"
    refused = (f"{{{ratio}}}", f"{{recovery_margin: 0.05, {ratio}, clusters: {{'pay*': {{recovery_margin: 0.1}}}}}}")
    for block, place in zip(refused, ("", r"clusters\.pay\*\."), strict=True):
        file.write_text(f"{watched}policies: {{{policy}: {block}}}")
        with pytest.raises(
            UserError, match=rf"policies\.{policy}\.{place}recovery_margin: .* never ends, as no volume"
        ):
            check(file)
    file.write_text(f"{watched}policies: {{{policy}: {{recovery_margin: 0.05, {ratio}}}}}")
    check(file)


@for_each(("text", "says"), DOUBTS)
def test_what_is_hardly_meant_is_a_warning_with_its_place(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    assert any(says in each for each in warnings(file)), warnings(file)


def test_a_policy_that_a_cluster_overrides_is_limited_there(file: Path) -> None:
    limit = "{hard: {available_bytes_below: 1GB}}"
    file.write_text(WATCHED + f"policies: {{throttle: {{clusters: {{'pay*': {limit}}}}}}}")
    assert warnings(file) == []


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("HEADGATE_KAFKA_SASL_PASSWORD", SECRET, "; did you mean HEADGATE_KAFKA__SASL__PASSWORD?"),
        ("HEADGATE_HTTP_PORT", "9408", "; did you mean HEADGATE_HTTP__PORT?"),
        ("HEADGATE_CLUSTER__PAYMENTS__KAFKA__SASL__PASSWORD", SECRET, "did you mean HEADGATE_CLUSTERS__PAYMENTS__"),
        ("HEADGATE_WEATHER", "fine", "is no setting and has no effect"),
        ("HEADGATE_HTTP__PORT", "9408", None),
        ("HEADGATE_MAVEN_URL", "https://mirror", None),
    ],
)
def test_a_variable_without_effect_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str | None
) -> None:
    file.write_text(WATCHED + LIMITED)
    monkeypatch.setenv(name, value)
    found = warnings(file)
    assert [name in each and (says or "") in each for each in found] == ([] if says is None else [True])
    assert SECRET not in "".join(found)


def test_warnings_are_told_beside_mistakes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("http: {port: many}\nclusters: {a: {bookies: }}\n")
    assert _run_guarded(lambda: app(["check", str(file)], standalone_mode=False)) == 2
    said = capsys.readouterr()
    assert f"{file}:1: http.port: input should be a valid integer" in said.err
    assert f"warning: {file}:2: clusters.a.bookies: is empty" in said.out


def test_the_file_is_named_as_for_every_command(file: Path) -> None:
    file.write_text(WATCHED + LIMITED)
    assert check("-s", file) == check("--settings", file) == check(file) == check(file, "-s", file)
    file.write_text("http: {port: 1}")
    assert check(file)[0].endswith("is good, with 1 warning: no cluster watched.\n")


@for_each(
    ("content", "block", "says"),
    [
        ("not a certificate", "kafka: {bootstrap_servers: 'k:1', tls: {ca_file: PEM}}", r"ca_file: .* in PEM form"),
        (
            "",
            "kafka: {bootstrap_servers: 'k:1', tls: {ca_file: PEM}}",
            r"kafka: tls\.ca_file: .* holds no certificates",
        ),
        (
            "x",
            "http: {access: {cert_file: PEM, key_file: PEM}}",
            r"http\.access: http\.access\.cert_file: cannot be used",
        ),
    ],
)
def test_a_file_that_holds_something_else_is_a_mistake(file: Path, content: str, block: str, says: str) -> None:
    (file.parent / "tls.pem").write_text(content)
    file.write_text(block.replace("PEM", str(file.parent / "tls.pem")))
    with pytest.raises(UserError, match=says):
        check(file)


EFFECTIVE = f"""\
kafka: {{bootstrap_servers: 'k:1', sasl: {{mechanism: SCRAM-SHA-512, username: u, password: {SECRET}}},
  properties: {{client.rack: {SECRET}}}}}
stream: {{kafka: {{ssl.keystore.password: {SECRET}}}}}
clusters:
  payments:
    kafka: {{bootstrap_servers: 'k:2'}}
    quotas: {{entities: [{{client_id: default, base: 10MB}}], max_told_wait: none}}
  dev-1: {{kafka: {{bootstrap_servers: 'k:3'}}}}
policies:
  throttle:
    hard: {{available_bytes_below: 1GB}}
    soft: {{available_ratio_below: 0.05}}
    clusters: {{"dev-*": {{preset: strimzi, soft: null}}}}
  sessions: {{shutdown_delay: null}}
  switching: {{strategies: {{schema: remap}}}}
"""


def test_the_settings_in_force_are_a_file_that_means_the_same(file: Path) -> None:
    file.write_text(EFFECTIVE)
    printed, _ = check("--effective", file)
    assert SECRET not in printed
    again = file.with_name("again.yaml")
    again.write_text(printed)
    before, after = load_settings(file), load_settings(again)
    assert after.clusters == before.clusters
    for name, block in before.policy_settings().items():
        for cluster in before.clusters:
            mine, its = block.for_cluster(cluster), after.policy_settings()[name].for_cluster(cluster)
            assert its.fingerprint() == mine.fingerprint(), (name, cluster)
    dev = yaml.safe_load(printed)["policies"]["throttle"]["clusters"]["dev-1"]
    assert (dev["min_hold"], dev["hard"]["available_bytes_below"], dev.get("soft")) == ("0s", 1_000_000_000, None)


def test_warnings_do_not_stand_within_the_settings_in_force(file: Path) -> None:
    file.write_text(WATCHED)
    printed, said = check("--effective", file)
    assert "never throttled" in said
    assert "warning" not in printed
