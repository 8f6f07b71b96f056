"""The generated files of docker/ have what they should, and Compose finds what it mounts."""

import socket
import subprocess
import sys
from pathlib import Path

import httpx
import yaml

from connectors.kafka.topics import RUN_PARTS, rights_of
from deploy.settings.file import load_settings

ROOT = Path(__file__).parents[2]


def test_the_users_of_strimzi_have_the_rights_of_their_parts_and_no_others() -> None:
    documents = yaml.safe_load_all((ROOT / "docker/strimzi-users.yaml").read_text())
    users = {each["metadata"]["name"]: each for each in documents}
    watched = {"headgate-watch", "headgate-throttle"}
    assert users.keys() - watched == {f"headgate-{part}" for part in (*RUN_PARTS, "topics", "command")}
    for name, user in users.items():
        is_watched = name in watched
        assert user["metadata"]["labels"]["strimzi.io/cluster"] == ("payments" if is_watched else "loop")
        if not is_watched:
            acls = user["spec"]["authorization"]["acls"]
            found = {(*acl["resource"].values(), each) for acl in acls for each in acl["operations"]}
            assert found == {
                (g.resource, f"headgate.{g.name}", "prefix" if g.is_prefix else "literal", each)
                for g in rights_of(name.removeprefix("headgate-"))
                for each in g.operations
            }


def test_the_settings_of_compose_are_good() -> None:
    assert load_settings(ROOT / "docker/headgate.yaml").clusters


def test_compose_mounts_only_what_is_there() -> None:
    compose = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
    volumes = [volume for service in compose["services"].values() for volume in service.get("volumes", ())]
    mounted = [volume.split(":")[0] for volume in volumes]
    files = [each for each in mounted if each.startswith(".")]
    assert len(files) >= 7
    assert [each for each in files if not (ROOT / "docker" / each).resolve().exists()] == []
    assert set(mounted) - set(files) == set(compose["volumes"])


def test_what_alertmanager_sends_to_people_is_printed_by_a_service_of_compose() -> None:
    receivers = yaml.safe_load((ROOT / "docs/reference/alertmanager.yaml").read_text())["receivers"]
    urls = [each["url"] for receiver in receivers for each in receiver.get("webhook_configs", ())]
    service = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]["notifications"]
    assert service["network_mode"] == "service:alertmanager", "whose 127.0.0.1 it is"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    labels = {"severity": "critical", "alertname": "log-dir-offline", "subject": "a/1"}
    alert = {"status": "firing", "labels": labels, "annotations": {"summary": "it is away"}}
    command = [sys.executable, str(ROOT / "docker/notifications.py"), str(port)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as printing,
        httpx.Client(transport=httpx.HTTPTransport(retries=8)) as client,
    ):
        try:
            for url in urls:
                assert ":5001/" in url
                sent = client.post(url.replace("5001", str(port)), json={"alerts": [alert]})
                assert sent.status_code == 204
        finally:
            printing.terminate()
        assert printing.stdout is not None
        assert printing.stdout.read().splitlines() == [
            f"{name}: firing critical log-dir-offline a/1: it is away" for name in ("pager", "tickets")
        ]


def test_the_dashboards_ask_the_source_that_compose_provides() -> None:
    source = yaml.safe_load((ROOT / "docker/grafana/datasource.yaml").read_text())["datasources"][0]
    assert source["type"] == "prometheus"
    assert source["isDefault"]
