"""Somebody else's policy, found by its entry point in an installed package: it works everywhere, no file touched.

Each command runs in a process of its own that has the package on its path, so that this one's registry stays as it is.
"""

import json
from pathlib import Path

import pytest

from policies.registry import POLICIES
from tests.deploy.several import Command, Ended, run_several
from tests.wheels import TOY, install
from tools.generate import REFERENCE

USER_ERROR = 2


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def reading(minute: int, under_replicated: int) -> str:
    data = {"cluster": "payments", "outcome": "ok", "under_replicated": under_replicated, "partitions": 12}
    event = {
        "specversion": "1.0", "id": f"reading-{minute}", "source": "test", "type": "headgate.under-replicated.v1",
        "subject": "payments", "time": f"2026-11-21T08:0{minute}:00Z", "data": data,
    }  # fmt: skip
    return json.dumps(event) + "\n"


def test_this_process_knows_nothing_of_it() -> None:
    assert "replication" not in POLICIES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def ended(folder: Path) -> dict[str, Ended]:
    """What commands came to that know the policy, or a package that is broken; one process has run them all."""
    events = write(folder / "events.jsonl", reading(0, 0) + reading(1, 3) + reading(2, 0))
    settings = write(folder / "settings.yaml", "policies: {replication: {hold: 90s, heartbeat: 1h}}")
    installed = [install(TOY, folder)]
    hosted = (Path(__file__).with_name("installed.py"), "-q", "-p", "no:cacheprovider", "--assert=plain")
    commands = {
        "generate": Command(("--root", folder / "generated"), installed, module="tools.generate"),
        "replay": Command(("replay", events, "--settings", settings, "--until", "2026-11-21T08:05:00Z"), installed),
        "check good": Command(("check", write(folder / "good.yaml", GOOD)), installed),
        "check bad": Command(("check", write(folder / "bad.yaml", BAD)), installed),
        "check reference": Command(("check", folder / "generated" / REFERENCE / "settings.yaml"), installed),
        "hosted": Command(hosted, installed, module="pytest"),
        "command": Command(("replication-factor", "1"), installed),
        "help": Command(("--help",), installed),
        "check broken": Command(("check", write(folder / "empty.yaml", "")), [broken(folder / "broken")]),
    }
    return dict(zip(commands, run_several([*commands.values()]), strict=True))


@pytest.fixture(scope="module")
def references(ended: dict[str, Ended], folder: Path) -> Path:
    assert (ended["generate"].status, ended["generate"].err) == (0, "")
    return folder / "generated" / REFERENCE


def test_replay_gives_its_decisions_and_its_alert(ended: dict[str, Ended]) -> None:
    replay = ended["replay"]
    assert (replay.status, replay.err) == (0, "")
    decided = [json.loads(line) for line in replay.out.splitlines()]
    verdicts = [(event["time"][11:19], event["data"]["verdict"], event["data"]["reason"]) for event in decided]
    assert verdicts == [
        ("08:00:00", "ok", "replicated"),
        ("08:01:00", "degraded", "under_replicated"),
        ("08:01:00", "firing", "under_replicated"),
        ("08:02:00", "degraded", "hold"),
        ("08:02:00", "resolved", "under_replicated"),
        ("08:03:30", "ok", "replicated"),
    ]


GOOD = """\
policies:
  replication: {degraded_above: 2, clusters: {"dev-*": {mode: shadow}}}
clusters:
  payments:
    kafka: {bootstrap_servers: "kafka-1:9092"}
    replication: {poll_interval: 10s}
"""


def test_check_knows_its_settings_of_the_policy_and_of_a_cluster(ended: dict[str, Ended]) -> None:
    check = ended["check good"]
    assert (check.status, check.err) == (0, "")


BAD = """\
policies:
  replication: {degraded_above: -1, clusters: {"dev-*": {hold: -1s}}}
clusters:
  payments:
    kafka: {bootstrap_servers: "kafka-1:9092"}
    replication: {poll_interval: 0s}
  orders:
    replication: {}
"""
MISTAKES = (
    "clusters.payments.replication.poll_interval: ",
    "clusters.orders.replication: needs kafka.bootstrap_servers, too",
    "policies.replication.degraded_above: ",
    "policies.replication.clusters.dev-*.hold: ",
)


def test_check_names_the_place_of_every_mistake_in_them(ended: dict[str, Ended]) -> None:
    check = ended["check bad"]
    assert check.status == USER_ERROR
    assert [place for place in MISTAKES if place not in check.err] == []
    assert len(check.err.splitlines()) == len(MISTAKES)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("events.md", "## headgate.under-replicated.v1"),
        ("events.md", "## headgate.replication.v1"),
        ("events.md", "| `hold` | It is well again, but not for `hold` yet. |"),
        ("asyncapi.yaml", "address: '{prefix}.observed.replication'"),
        ("asyncapi.yaml", "address: '{prefix}.decided.replication'"),
        ("settings.yaml", "degraded_above: 0"),
        ("settings.yaml", "poll_interval: 30s"),
        ("metrics.md", "| `headgate_under_replicated_partitions` | gauge | `cluster` |"),
        ("alerts.md", "| [`partitions-under-replicated`](#partitions-under-replicated) | `replication` | `warning` |"),
        ("schemas/headgate.replication.v1.json", '"urn:headgate:headgate.replication.v1"'),
    ],
)
def test_the_references_have_it(page: str, said: str, references: Path) -> None:
    assert said in (references / page).read_text()


def test_the_settings_page_with_it_is_a_good_settings_file(ended: dict[str, Ended]) -> None:
    assert ended["check reference"].status == 0


def test_the_operator_and_the_exporter_host_it(ended: dict[str, Ended]) -> None:
    assert ended["hosted"].status == 0, ended["hosted"].out + ended["hosted"].err


def test_it_brings_a_command_of_its_own(ended: dict[str, Ended]) -> None:
    assert ended["command"] == Ended(0, "replication.factor=3 min.insync.replicas=2\n", "")
    assert "replication-factor" in ended["help"].out


def broken(folder: Path) -> Path:
    """An installed package that cannot be loaded; `test_registry` has all that can be wrong with one."""
    info = folder / "broken-1.0.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    write(info / "entry_points.txt", "[headgate.policies]\nbroken = broken:KIND\n")
    write(folder / "broken.py", "import no_such_library")
    return folder


def test_a_package_that_is_broken_is_one_line_whatever_the_command(ended: dict[str, Ended]) -> None:
    check = ended["check broken"]
    assert (check.status, check.out) == (USER_ERROR, "")
    assert "it cannot be loaded (ModuleNotFoundError: No module named 'no_such_library')" in check.err
    assert len(check.err.splitlines()) == 1
