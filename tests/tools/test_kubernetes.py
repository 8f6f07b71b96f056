"""The generated files of docker/ have what they should, and Compose finds what it mounts."""

from pathlib import Path

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
                (g.resource.value, f"headgate.{g.name}", "prefix" if g.is_prefix else "literal", each)
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


def test_the_dashboards_ask_the_source_that_compose_provides() -> None:
    source = yaml.safe_load((ROOT / "docker/grafana/datasource.yaml").read_text())["datasources"][0]
    assert source["type"] == "prometheus"
    assert source["isDefault"]
