"""Encrypted and authenticated connections to a real broker, by all three clients."""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry

from connectors.collection import PollMetrics
from connectors.kafka.admin import check_topics, create_topics
from connectors.kafka.clients import LOGGER
from connectors.kafka.connection import KafkaConnection, WatchedKafka
from connectors.kafka.log_dirs import LogDirsCollector
from connectors.kafka.topics import TopicSettings, rights_of
from deploy.doctor import Result, Verdict
from deploy.embedded.kafka import LOOPBACK, EmbeddedKafka
from deploy.java.jars import ensure_jars
from deploy.java.jvm import find_java
from deploy.settings.application import default_cache_dir
from policies.observations import Outcome, Reading
from policies.throttle import LogDirs
from policies.throttle.readings import VolumeReading
from policies.units import UserError, parse_duration
from policies.wire import observation_event
from tests.system.doctor import carry_out, examined
from tests.system.loop import UNHURRIED, Headgate, Topic, await_ready, http_get, produce, write_settings
from tests.system.processes import command_line
from tests.system.waiting import DEADLINE_SECONDS, eventually
from tests.system.zookeeper import ZooKeeper

PASSWORD = 'p "q" \\back; {x} é='
KEY_PASSWORD = "canary-of-the-key"
NO_RIGHTS = "observer"
CANARY = "canary"
CHECKOUT = Path(__file__).parents[2]
"""A user whose passwords, and those of others like it, are looked for everywhere."""
CANARIES = {name: f"canary-of-{name}-5d1e" for name in ("kafka", "refused", "zookeeper", "pulsar")}
FIRST_PORT = 19_700
SECURITY = "org.apache.kafka.common.security"


@dataclass
class Secured:
    """A broker with listeners for SASL, with and without TLS, and for TLS with client certificates."""

    folder: Path
    sasl_port: int
    tls_port: int
    clear_port: int
    plain_servers: str
    pid: int

    def file(self, name: str) -> Path:
        return self.folder / name

    def sasl(self, username: str = "alice", mechanism: str = "PLAIN", **fields: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": f"{LOOPBACK}:{self.sasl_port}",
            "tls": {"ca_file": self.file("ca.pem")},
            "sasl": {"mechanism": mechanism, "username": username, **(fields or {"password": PASSWORD})},
        }

    def in_the_clear(self, username: str = "alice", password: str = PASSWORD) -> dict[str, Any]:
        return {
            "bootstrap_servers": f"{LOOPBACK}:{self.clear_port}",
            "sasl": {"mechanism": "PLAIN", "username": username, "password": password},
        }

    def by_tokens(self, username: str = "alice") -> dict[str, Any]:
        return {
            "bootstrap_servers": f"{LOOPBACK}:{self.clear_port}",
            "sasl": {"mechanism": "OAUTHBEARER", "token_provider": "tests.system.unsecured_tokens:provide"},
            "properties": {"sasl.oauthbearer.config": username},
        }

    def mutual_tls(self) -> dict[str, Any]:
        tls = {"ca_file": self.file("ca.pem"), "cert_file": self.file("client.pem"), "key_file": self.file("client.p8")}
        return {"bootstrap_servers": f"{LOOPBACK}:{self.tls_port}", "tls": {**tls, "key_password": KEY_PASSWORD}}


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_certificates(folder: Path) -> None:
    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(folder, "req", "-x509", *ec, "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem")
    for name in ("server", "client"):
        openssl(folder, "req", *ec, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (folder / "names").write_text(f"subjectAltName=IP:{LOOPBACK}\n")
        signed = ("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
        openssl(folder, *signed, "-extfile", "names", "-out", f"{name}.pem")
    locked = ("-v1", "PBE-SHA1-3DES", "-passout", f"pass:{KEY_PASSWORD}")
    openssl(folder, "pkcs8", "-topk8", "-in", "client.key", *locked, "-out", "client.p8")
    both = (folder / "server.key").read_text() + (folder / "server.pem").read_text()
    (folder / "server-both.pem").write_text(both)


def token_login(user: str) -> str:
    """The login of Kafka's own Java classes by unsecured tokens."""
    return f'{SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{user}";'


def properties(folder: Path, plain: int, controller: int, sasl: int, tls: int, clear: int) -> dict[str, str | int]:
    listeners = f"PLAINTEXT://{{0}}:{plain},CONTROLLER://{{0}}:{controller},SASL_SSL://{{0}}:{sasl},SSL://{{0}}:{tls}"
    listeners += f",CLEAR://{{0}}:{clear}"
    in_jaas = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    users = f'user_alice="{in_jaas}" user_{NO_RIGHTS}="{in_jaas}" user_{CANARY}="{CANARIES["kafka"]}"'
    login = f"PlainLoginModule required {users};"
    return {
        "listeners": listeners.format(LOOPBACK),
        "advertised.listeners": listeners.format(LOOPBACK),
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,"
        "CLEAR:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{SECURITY}.plain.{login}",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{SECURITY}.scram.ScramLoginModule required;",
        "listener.name.clear.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.clear.plain.sasl.jaas.config": f"{SECURITY}.plain.{login}",
        "listener.name.clear.oauthbearer.sasl.jaas.config": token_login("broker"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server-both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice;User:canary;User:scarlet;User:CN=client",
    }


@pytest.fixture(scope="module")
def broker(kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    make_certificates(folder)
    plain, controller, sasl, tls, clear = range(FIRST_PORT, FIRST_PORT + 5)
    with EmbeddedKafka(
        folder / "kafka",
        kafka_jars,
        ports=[plain],
        server_properties=properties(folder, plain, controller, sasl, tls, clear),
        heap_mebibytes=96,
    ) as kafka:
        add_scram_user(kafka.bootstrap_servers, "scarlet")
        yield Secured(folder, sasl, tls, clear, kafka.bootstrap_servers, kafka.pids[1])


def add_scram_user(servers: str, user: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion(user, info, PASSWORD.encode())
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.alter_user_scram_credentials([upsertion]).values():
        future.result(timeout=DEADLINE_SECONDS)


def poll(collector: LogDirsCollector, readings: list[Reading]) -> list[tuple[str, Outcome]]:
    readings.clear()
    collector.poll_once()
    return [(reading.subject(), reading.outcome) for reading in readings]


@pytest.fixture
def watch() -> Iterator[Callable[[dict[str, Any]], tuple[LogDirsCollector, list[Reading]]]]:
    made: list[LogDirsCollector] = []

    def watch(settings: dict[str, Any]) -> tuple[LogDirsCollector, list[Reading]]:
        readings: list[Reading] = []
        watched = WatchedKafka(**{"timeout": parse_duration("15s"), **settings})
        collector = LogDirsCollector("c", watched, readings.append, PollMetrics(CollectorRegistry()))
        made.append(collector)
        return collector, readings

    yield watch
    for collector in made:
        collector.close()


Watching = Callable[[dict[str, Any]], tuple[LogDirsCollector, list[Reading]]]

CONNECTIONS: dict[str, Callable[[Secured], dict[str, Any]]] = {
    "PLAIN": lambda broker: broker.sasl(),
    "SCRAM": lambda broker: broker.sasl("scarlet", "SCRAM-SHA-256"),
    "client certificate": lambda broker: broker.mutual_tls(),
    "PLAIN without TLS": lambda broker: broker.in_the_clear(),
    "tokens": lambda broker: broker.by_tokens(),
}
JAVA = {"tokens": {"sasl.jaas.config": token_login("alice")}}
"""The setting `stream.kafka` of these."""

ALL_READ = [("c", Outcome.OK), ("c/1", Outcome.OK)]


@pytest.mark.parametrize("kind", CONNECTIONS)
def test_kafka_python_is_let_in(kind: str, broker: Secured, watch: Watching) -> None:
    assert poll(*watch(CONNECTIONS[kind](broker))) == ALL_READ


@pytest.mark.parametrize("kind", CONNECTIONS)
def test_confluent_kafka_is_let_in(kind: str, broker: Secured) -> None:
    admin = AdminClient(KafkaConnection(**CONNECTIONS[kind](broker)).for_confluent())
    assert set(admin.list_topics(timeout=DEADLINE_SECONDS).brokers) == {1}


JAVA_PROBE = """
import java.io.FileReader;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;

public class Probe {
    public static void main(String[] files) throws Exception {
        for (String file : files) {
            Properties options = new Properties();
            options.load(new FileReader(file, java.nio.charset.StandardCharsets.UTF_8));
            options.put("default.api.timeout.ms", "60000");
            options.put("request.timeout.ms", "30000");
            try (Admin admin = Admin.create(options)) {
                System.out.println("brokers " + admin.describeCluster().nodes().get().size());
            }
        }
    }
}
"""


def java_properties(options: dict[str, str]) -> str:
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
    return "".join(f"{key}={''.join(escapes.get(c, c) for c in value)}\n" for key, value in options.items())


def test_the_java_client_of_spark_is_let_in(broker: Secured, tmp_path: Path) -> None:
    try:
        clients = [jar for jar in ensure_jars("spark", default_cache_dir()) if jar.name.startswith("kafka-clients")]
        others = ("slf4j-api", "jackson-")
        needed = [jar for jar in ensure_jars("kafka", default_cache_dir()) if jar.name.startswith(others)]
    except UserError as error:
        pytest.skip(str(error))
    if shutil.which("javac") is None:
        pytest.skip("compiling the probe needs a JDK, not only a JRE")
    (tmp_path / "Probe.java").write_text(JAVA_PROBE)
    files = []
    for kind, settings in CONNECTIONS.items():
        files.append(str(tmp_path / f"{kind}.properties"))
        options = {**KafkaConnection(**settings(broker)).for_spark(), **JAVA.get(kind, {})}
        Path(files[-1]).write_text(java_properties(options), encoding="utf-8")
    command = [str(find_java()), "-cp", ":".join(map(str, [*clients, *needed])), str(tmp_path / "Probe.java"), *files]
    probe = subprocess.run(command, capture_output=True, text=True, check=False)
    assert probe.returncode == 0, probe.stdout + probe.stderr
    assert probe.stdout.splitlines().count("brokers 1") == len(CONNECTIONS), probe.stdout


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_unauthorized(mechanism: str, broker: Secured, watch: Watching) -> None:
    collector, readings = watch(broker.sasl(mechanism=mechanism, password="wrong-but-secret"))
    for _ in range(3):
        assert poll(collector, readings) == [("c", Outcome.UNAUTHORIZED)]
        assert "wrong-but-secret" not in (readings[0].detail or "")


def test_a_user_without_rights_on_the_cluster_is_unauthorized_not_empty(broker: Secured, watch: Watching) -> None:
    collector, readings = watch(broker.sasl(NO_RIGHTS))
    for _ in range(2):
        assert poll(collector, readings) == [("c", Outcome.OK), ("c/1", Outcome.UNAUTHORIZED)]
        assert readings[1].detail == "ClusterAuthorizationFailed"


def test_an_unknown_authority_is_an_error_that_says_so(broker: Secured, watch: Watching) -> None:
    collector, readings = watch({**broker.sasl(), "tls": {"ca_file": broker.file("client.pem")}})
    assert poll(collector, readings) == [("c", Outcome.ERROR)]
    assert "certificate verify failed" in (readings[0].detail or "")


def test_a_password_corrected_on_disk_is_picked_up(broker: Secured, watch: Watching, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("wrong")
    collector, readings = watch(broker.sasl(password_file=file))
    assert poll(collector, readings) == [("c", Outcome.UNAUTHORIZED)]
    file.unlink()
    assert poll(collector, readings) == [("c", Outcome.ERROR)]
    assert readings[0].detail == f"sasl.password_file: {file} cannot be read: No such file or directory."
    file.write_text(f"{PASSWORD}\n")
    assert poll(collector, readings) == ALL_READ


def create(admin: AdminClient, topic: str) -> None:
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(timeout=DEADLINE_SECONDS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sasl": {"mechanism": "PLAIN", "username": "alice", "password": "wrong"}}, "kafka.sasl: .*refuses the login"),
        ({"tls": {"ca_file": "client.pem"}}, "kafka.tls: no encrypted connection"),
        ({"sasl": None, "tls": None}, "kafka: .* accepts connections and .* expects TLS or a login, set kafka.tls or"),
    ],
)
def test_a_refused_admin_says_why(fields: dict[str, Any], message: str, broker: Secured) -> None:
    if fields.get("tls") is not None:
        fields = {"tls": {"ca_file": broker.file(fields["tls"]["ca_file"])}}
    connection = KafkaConnection(**{**broker.sasl(), **fields})
    with pytest.raises(UserError, match=message):
        check_topics(connection, TopicSettings(), timeout_seconds=10.0)


def test_host_names_are_verified_unless_told_otherwise(broker: Secured) -> None:
    servers = f"localhost:{broker.sasl_port}"  # the certificate names the address alone
    strict = KafkaConnection(**{**broker.sasl(), "bootstrap_servers": servers})
    with pytest.raises(KafkaException):
        AdminClient(strict.for_confluent(), logger=LOGGER).list_topics(timeout=3)
    assert strict.tls is not None
    lax = strict.model_copy(update={"tls": strict.tls.model_copy(update={"verify_hostname": False})})
    assert AdminClient(lax.for_confluent()).list_topics(timeout=DEADLINE_SECONDS).brokers


# --- where secrets are to be found: nowhere


class Echo(BaseHTTPRequestHandler):
    """A server that quotes in its refusal who asked, as careless ones do."""

    def do_GET(self) -> None:
        body = json.dumps({"reason": f"no rights: {self.headers['Authorization']}"}).encode()
        self.send_response(500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Nothing."""


@pytest.fixture
def echo() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """With a name short enough for sockets below it."""
    with tempfile.TemporaryDirectory(prefix="hg") as folder:
        yield Path(folder)


def everything_on(servers: str, prefix: str) -> Iterator[tuple[str, bytes]]:
    """All records of all topics of a loop."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": prefix, "auto.offset.reset": "earliest"})
    try:
        names = [name for name in consumer.list_topics(timeout=DEADLINE_SECONDS).topics if name.startswith(prefix)]
        for name in names:
            end = consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=DEADLINE_SECONDS)[1]
            consumer.assign([TopicPartition(name, 0, 0)])
            while end and (message := consumer.poll(DEADLINE_SECONDS)) is not None:
                yield f"{name}@{message.offset()}", message.value() or b""
                if message.offset() == end - 1:
                    break
    finally:
        consumer.close()


def forms(secret: str) -> set[bytes]:
    """What a secret may look like."""
    plain = {secret, json.dumps(secret)[1:-1], quote(secret), f"{CANARY}:{secret}", f"\0{CANARY}\0{secret}"}
    return {each.encode() for each in plain} | {base64.b64encode(each.encode()).rstrip(b"=")[:-1] for each in plain}


def in_shared_folder(pid: int, own: Path) -> Iterator[str]:
    """What a process has open below /tmp, but for a folder of its own and the code that it runs."""
    links = [str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()]
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    mapped = [line.split(maxsplit=5)[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    for path in (*links, *mapped, *(words[7] for words in sockets if len(words) > 7 and words[6] in inodes)):
        if path.startswith("/tmp/") and not path.startswith((f"{own}/", f"{CHECKOUT}/")):
            yield path


def canary_settings(broker: Secured, zookeeper: ZooKeeper, echo: str, folder: Path, port: int) -> Path:
    """Settings with a secret of every kind: let in and refused, in a file of its own, in the environment."""
    kafka = broker.sasl(CANARY, password=CANARIES["kafka"])
    (folder / "token").write_text(CANARIES["pulsar"])
    return write_settings(
        folder / "headgate.yaml",
        kafka=plain({**kafka, "sasl": {"mechanism": "PLAIN", "username": CANARY}}),
        topics={"prefix": "canaries", "partitions": 1},
        stream=UNHURRIED,
        data_dir=str(folder / "data"),
        http={"port": port},
        clusters={
            "c1": {
                "kafka": plain({**kafka, "poll_interval": "1s"}),
                "zookeeper": {"servers": zookeeper.servers, "user": CANARY, "password": CANARIES["zookeeper"]},
                "bookies": {},
                "pulsar": {"admin_url": echo, "token_file": str(folder / "token")},
                "health": {"members": [echo.removeprefix("http://")], "poll_interval": "1s"},
                "unload": {},
            },
            "c2": {"kafka": plain(broker.in_the_clear(CANARY, CANARIES["refused"]))},
            "c3": {"kafka": plain(broker.mutual_tls())},
        },
    )


def plain(block: dict[str, Any]) -> Any:
    """With paths as texts."""
    return json.loads(json.dumps(block, default=str))


def metrics(port: int) -> str:
    return (http_get(port, "/metrics") or (0, ""))[1]


def crash_the_query(headgate: Headgate, port: int, data: Path) -> None:
    """End its JVM as a fault in native code does, and await the next one."""
    arguments = {pid: command_line(pid) for pid in headgate.children()}
    # A child of the JVM, such as `chmod`, has its arguments until it executes its own program.
    os.kill(
        min(pid for pid, line in arguments.items() if b"org.apache.spark.deploy.SparkSubmit" in line), signal.SIGSEGV
    )
    eventually("a crash report", lambda: (data / "spark.crash").exists())
    eventually("the query is started anew", lambda: "headgate_query_restarts_total 1" in metrics(port))
    await_ready(headgate, port)


def test_secrets_are_in_no_log_metric_record_argument_checkpoint_or_crash_report(
    broker: Secured, zookeeper: ZooKeeper, echo: str, short_folder: Path, free_port: int
) -> None:
    data, run = short_folder / "data", ("-s", str(canary_settings(broker, zookeeper, echo, short_folder, free_port)))
    secrets = {"HEADGATE_KAFKA__SASL__PASSWORD": CANARIES["kafka"]}
    found: dict[str, bytes] = {}
    with Headgate(["run", "-v", *run], short_folder / "run.log", secrets) as headgate:
        await_ready(headgate, free_port)
        eventually("every cluster was read, or refused", lambda: {"c1", "c2", "c3"} <= clusters_read(broker))
        pids = (headgate.process.pid, *headgate.children())
        found |= {f"arguments of {pid}": command_line(pid) for pid in pids}
        found["metrics"] = metrics(free_port).encode()
        for pid in pids:
            try:
                assert list(in_shared_folder(pid, short_folder)) == []
            except (FileNotFoundError, ProcessLookupError):
                assert not command_line(pid), "only a child that has ended, such as `chmod`, cannot be read"
        crash_the_query(headgate, free_port, data)
        headgate.kill()
    with Headgate(["topics", "check", *run], short_folder / "topics.log", dict.fromkeys(secrets, "wr0ng-0ne")) as check:
        assert check.wait() == 2, check.output()
    written = [data, *data.rglob("*")]
    assert [str(path) for path in written if path.stat(follow_symlinks=False).st_mode & 0o077] == []
    found |= dict(everything_on(broker.plain_servers, "canaries"))
    found |= {str(path): path.read_bytes() for path in (*written, *short_folder.glob("*.log")) if path.is_file()}
    for kind in ("spark.log", "spark.crash", "checkpoint", "run.log", "observed"):
        assert any(kind in place for place in found)
    for name, secret in {**CANARIES, "key": KEY_PASSWORD}.items():
        assert [place for place, content in found.items() if any(form in content for form in forms(secret))] == [], name


def clusters_read(broker: Secured) -> set[str]:
    """Of which there are observations."""
    observed = everything_on(broker.plain_servers, "canaries.observed.")
    return {json.loads(value)["data"]["cluster"] for _, value in observed}


# --- who may write what


Right = tuple[str, str, bool, str]
"""Kind and name of a resource, whether the name is a prefix, and an operation."""


def grant(broker: Secured, part: str, prefix: str) -> None:
    """Give the user without rights those of a part, on the real authorizer, and no others."""
    grant_all(
        broker,
        [
            (each.resource, f"{prefix}.{each.name}", each.is_prefix, operation)
            for each in rights_of(part)
            for operation in each.operations
        ],
    )


def grant_all(broker: Secured, rights: Iterable[Right], user: str = NO_RIGHTS) -> None:
    """Give a user these rights, and no others."""
    admin = AdminClient({"bootstrap.servers": broker.plain_servers})
    of_user = (f"User:{user}", "*")
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]  # of all names
        ResourcePatternType.ANY,
        *of_user,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    for future in admin.delete_acls([everything]).values():
        future.result(timeout=DEADLINE_SECONDS)
    bindings = [
        AclBinding(
            ResourceType.BROKER if kind == "cluster" else ResourceType[kind.upper()],
            name,
            ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL,
            *of_user,
            AclOperation["_".join(re.findall("[A-Z][a-z]+", operation)).upper()],
            AclPermissionType.ALLOW,
        )
        for kind, name, is_prefix, operation in rights
    ]
    for future in (admin.create_acls(bindings) if bindings else {}).values():
        future.result(timeout=DEADLINE_SECONDS)


def creates_topics(broker: Secured, prefix: str) -> bool:
    """Whether that user may create the topics of the loop, and has."""
    try:
        return bool(create_topics(KafkaConnection(**broker.sasl(NO_RIGHTS)), TopicSettings(prefix=prefix)).created)
    except UserError:
        return False


@pytest.mark.parametrize(
    ("part", "login"),
    [
        ("collect", Secured.sasl),
        ("decide", Secured.by_tokens),
    ],
    ids=["collect", "decide, by tokens"],
)
def test_a_part_with_its_own_rights_does_its_work(
    broker: Secured, tmp_path: Path, free_port: int, part: str, login: Callable[[Secured, str], dict[str, Any]]
) -> None:
    prefix = f"work-{part}-{login.__name__}"
    grant(broker, "topics", prefix)
    eventually("a user for that creates the topics", partial(creates_topics, broker, prefix))
    grant(broker, part, prefix)
    file = write_settings(
        tmp_path / "headgate.yaml",
        kafka=plain(login(broker, NO_RIGHTS)),
        stream={"kafka": {"sasl.jaas.config": token_login(NO_RIGHTS)} if login is Secured.by_tokens else {}},
        topics={"prefix": prefix},
        data_dir=str(tmp_path / "data"),
        http={"port": free_port},
        clusters={"c1": {"kafka": {"bootstrap_servers": broker.plain_servers, "poll_interval": "1s"}}},
    )
    written = "observed.log-dirs" if part == "collect" else "decided.throttle"
    if part == "decide":
        reading = LogDirs(cluster="c1", outcome=Outcome.OK, broker=1, volumes=(VolumeReading(log_dir="/d"),))
        record = observation_event(reading, id="1", source="test", time=datetime.now(UTC))
        produce(broker.plain_servers, f"{prefix}.observed.log-dirs", ("c1", record))
    with Headgate([part, "-s", str(file)], tmp_path / "part.log") as running:
        await_ready(running, free_port)
        with Topic(broker.plain_servers, f"{prefix}.{written}") as topic:
            eventually(f"it writes {written}", lambda: topic.entries() != [])
        assert running.stop() == 0, running.output()


@pytest.mark.parametrize(
    ("user", "may"),
    [
        ("headgate-watch", {"payments, throttle collector"}),
        ("headgate-throttle", {"payments: Kafka, quotas", "payments: Kafka, rights on quotas"}),
    ],
)
def test_the_users_of_strimzi_may_do_their_work_on_a_watched_cluster(user: str, may: set[str], broker: Secured) -> None:
    users = yaml.safe_load_all((CHECKOUT / "docker/strimzi-users.yaml").read_text())
    (acls,) = (each["spec"]["authorization"]["acls"] for each in users if each["metadata"]["name"] == user)
    rights = [
        (each["resource"]["type"], each["resource"].get("name", "kafka-cluster"), False, operation)
        for each in acls
        for operation in each["operations"]
    ]
    quotas = {"entities": [{"client_id": "default", "base": "10MB"}]}
    clusters = {"payments": {"kafka": plain(broker.sasl(NO_RIGHTS)), "quotas": quotas}}

    def allowed() -> set[str]:
        return {asked for asked, each in examined({"clusters": clusters}).items() if asked in may and each.is_good}

    grant_all(broker, [])
    eventually("it may do nothing", lambda: not allowed())
    grant_all(broker, rights)
    eventually(f"it may do what {user} should", lambda: allowed() == may)


def test_what_the_doctor_says_is_not_allowed_is_allowed_by_the_lines_that_it_says(broker: Secured) -> None:
    add_scram_user(broker.plain_servers, "patient")
    topics = {"prefix": "doctored", "partitions": 1}
    create_topics(KafkaConnection(bootstrap_servers=broker.plain_servers), TopicSettings.model_validate(topics))
    patient = plain(broker.sasl("patient", "SCRAM-SHA-256"))
    quotas = {"entities": [{"client_id": "default", "base": "10MB"}]}
    clusters: dict[str, Any] = {"payments": {"kafka": patient, "quotas": quotas}}
    settings = {"kafka": patient, "topics": topics, "clusters": clusters}
    parts = ("decide", "collect-throttle", "act")

    before = examined(settings, *parts)
    assert before["loop Kafka, brokers"].is_good
    assert {asked: each.verdict for asked, each in before.items() if not each.is_good} == {
        "loop Kafka, topics": Verdict.NOT_ALLOWED,
        "loop Kafka, rights": Verdict.NOT_ALLOWED,
        "loop Kafka, deciding": Verdict.NOT_ALLOWED,
        "payments, throttle collector": Verdict.NOT_ALLOWED,
        "payments: Kafka, quotas": Verdict.NOT_ALLOWED,
        "payments: Kafka, rights on quotas": Verdict.NOT_ALLOWED,
        "payments: Kafka, own clients": Verdict.WRONG,
    }
    (own,) = before.pop("payments: Kafka, own clients").remedies
    assert own.endswith("quotas: exclude: [patient]")
    clusters["payments"]["quotas"] = {**quotas, "exclude": ["patient"]}
    assert PASSWORD not in str(before)
    carry_out([line for each in before.values() for line in each.remedies], broker.plain_servers)

    eventually("it may do all, and does not slow itself down", lambda: all_good(examined(settings, *parts)))


def all_good(answers: dict[str, Result]) -> bool:
    return all(each.is_good for each in answers.values())
