"""Connections are made when they are first asked for, shared by all parts, and ended together."""

from typing import Any

import pytest

from connectors.zookeeper.session import NotConnectedError, ZooKeeperSession, describe_zookeeper_error
from deploy.processes.parts import Connections
from deploy.settings.application import Settings

NOWHERE = "127.0.0.1:1"


def settings(**clusters: dict[str, Any]) -> Settings:
    return Settings.model_validate({"clusters": clusters})


BOTH = settings(c1={"zookeeper": {"servers": NOWHERE}, "pulsar": {"admin_url": f"http://{NOWHERE}"}})


def test_what_the_settings_do_not_name_is_none() -> None:
    with Connections(settings(c1={"kafka": {"bootstrap_servers": NOWHERE}})) as connections:
        assert connections.zookeeper("c1") is None
        assert connections.pulsar("c1") is None


def test_all_who_ask_share_one() -> None:
    with Connections(BOTH) as connections:
        zookeeper, pulsar = connections.zookeeper("c1"), connections.pulsar("c1")
        assert zookeeper is not None
        assert pulsar is not None
        assert connections.zookeeper("c1") is zookeeper
        assert connections.pulsar("c1") is pulsar


def test_clusters_share_nothing() -> None:
    two = settings(c1={"zookeeper": {"servers": NOWHERE}}, c2={"zookeeper": {"servers": NOWHERE}})
    with Connections(two) as connections:
        assert connections.zookeeper("c1") is not connections.zookeeper("c2")


def ended(session: ZooKeeperSession | None) -> bool:
    assert session is not None
    with pytest.raises(NotConnectedError) as raised:
        session.client()
    return describe_zookeeper_error(raised.value) == "c1: our session has ended"


def test_a_clusters_end_with_the_last_who_uses_them_and_begin_anew_with_the_next() -> None:
    quick = settings(c1={"zookeeper": {"servers": NOWHERE, "timeout": "50ms"}})
    with Connections(quick) as connections:
        with connections.using(["c1"]):
            with connections.using(["c1"]):
                first = connections.zookeeper("c1")
            assert not ended(first)
        assert ended(first)
        with connections.using(["c1"]):
            assert connections.zookeeper("c1") is not first


def test_they_end_together() -> None:
    with Connections(BOTH) as connections:
        session = connections.zookeeper("c1")
    assert ended(session)
