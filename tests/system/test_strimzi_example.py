"""The chart's example for Strimzi: each pod's command, variables and files on a broker that has Strimzi's users."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deploy.test_chart import EXAMPLES, USERS, Manifest, pods, render, settings_in, workloads
from tests.system.loop import Headgate, await_ready, http_get
from tests.system.test_kafka_security import PASSWORD, Right, Secured, add_scram_user, broker, grant_all
from tests.system.waiting import eventually
from tests.system.zookeeper import free_port

__all__ = ["broker"]
pytestmark = pytest.mark.long


def rights(user: Manifest) -> Iterator[Right]:
    for acl in user["spec"]["authorization"]["acls"]:
        resource = acl["resource"]
        is_prefix = resource.get("patternType") == "prefix"
        for operation in acl["operations"]:
            yield resource["type"], resource.get("name", "kafka-cluster"), is_prefix, operation


def as_here(text: str, secured: Secured) -> str:
    """The broker's address and authority, and the mechanism of its users."""
    text = re.sub(r"\w+-kafka-bootstrap:9093", f"127.0.0.1:{secured.sasl_port}", text)
    text = re.sub(r"/run/secrets/\S+/ca.crt", str(secured.file("ca.pem")), text)
    return text.replace("SCRAM-SHA-512", "SCRAM-SHA-256").replace("replication_factor: 3", "replication_factor: 1")


class Running:
    """Runs commands as pods of the example, each in a folder of its own."""

    def __init__(self, secured: Secured, folder: Path) -> None:
        self.secured, self.folder = secured, folder
        self.manifests = render("--values", EXAMPLES / "strimzi.yaml")
        self.settings = folder / "headgate.yaml"
        self.settings.write_text(as_here(settings_in(self.manifests), secured))

    def run(self, name: str, pod: Manifest, port: int, *command: str) -> Headgate:
        """The pod's own command, or another one in it."""
        (container,) = pod["spec"]["containers"]
        variables = {each["name"]: each.get("value") or PASSWORD for each in container["env"]}
        variables |= {"HEADGATE_HTTP__PORT": str(port), "HEADGATE_HTTP__PROBES_PORT": "0"}
        variables |= {"HEADGATE_HTTP__HOST": "127.0.0.1", "HEADGATE_DATA_DIR": str(self.folder / name)}
        arguments = command or container["args"][:-2]
        here = {variable: as_here(value, self.secured) for variable, value in variables.items()}
        return Headgate([*arguments, "-s", str(self.settings)], self.folder / f"{name}.log", here)


def test_each_pod_of_the_example_does_its_work_with_its_own_user(broker: Secured, tmp_path: Path) -> None:
    for user in USERS:
        add_scram_user(broker.plain_servers, user["metadata"]["name"])
        grant_all(broker, rights(user), user["metadata"]["name"])
    example = Running(broker, tmp_path)
    jobs, parts = pods(example.manifests, "Job"), workloads(example.manifests)
    with example.run("topics", jobs["topics"], 0) as creating:
        assert creating.wait() == 0, creating.output()
    with ExitStack() as started:
        ports = {part: free_port() for part in parts}
        running = {part: started.enter_context(example.run(part, pod, ports[part])) for part, pod in parts.items()}
        for part, headgate in running.items():
            await_ready(headgate, ports[part])
        factor = 'headgate_throttle_factor{cluster="payments"}'
        eventually("the cluster is read and decided on", lambda: factor in metrics(ports["export"]))
        for part in ("collect", "act"):
            with example.run(f"{part}-doctor", parts[part], 0, "doctor", "--part", part) as doctor:
                doctor.wait()
                assert "lacks" not in doctor.output()


def metrics(port: int) -> str:
    return (http_get(port, "/metrics") or (0, ""))[1]
