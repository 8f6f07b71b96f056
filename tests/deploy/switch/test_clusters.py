"""A BookKeeper cluster is registered by what is read at its own address, and by nothing else."""

from typing import Any

import pytest

from connectors.switching.clusters import ClusterSessions
from connectors.zookeeper.session import NotConnectedError
from deploy.settings.application import Settings
from deploy.switch import precheck
from policies.switching.ledgers import ClusterSnapshot, Layout
from policies.units import UserError

SETTINGS = Settings.model_validate(
    {
        "clusters": {
            "c1": {
                "zookeeper": {"servers": "zk-1:2181"},
                "bookkeeper": {
                    "bootstrap": "old",
                    "clusters": {"old": {}, "new": {"zookeeper": {"servers": "zk-2:2181/bk"}, "ledgers_root": "/l"}},
                },
            }
        }
    }
)


def found(**changes: Any) -> ClusterSnapshot:
    known: dict[str, Any] = {
        "name": "new",
        "instance_id": "id-new",
        "root": "/bk/l",
        "layout": Layout.HIERARCHICAL,
        "generator": None,
        "read_ms": 0,
    }
    return ClusterSnapshot(**(known | changes))


def reads(monkeypatch: pytest.MonkeyPatch, seen: ClusterSnapshot | Exception) -> None:
    """What is found at any cluster's address."""

    def read_cluster(_self: ClusterSessions, _name: str) -> ClusterSnapshot:
        if isinstance(seen, Exception):
            raise seen
        return seen

    monkeypatch.setattr(ClusterSessions, "read_cluster", read_cluster)


def test_it_is_registered_by_its_identity_and_its_address_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch, found())
    assert precheck.identify_cluster(SETTINGS, "c1", "new") == {
        "name": "new",
        "uri": "zk+hierarchical://zk-2:2181/bk/l",
        "instance_id": "id-new",
        "root": "/bk/l",
    }


BLOCK = r"clusters\.c1\.bookkeeper\.clusters\.new"


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (found(instance_id=None), f"{BLOCK}: /bk/l/INSTANCEID is empty"),
        (found(layout=None), f"{BLOCK}: /bk/l/LAYOUT names neither"),
        (NotConnectedError({"zk-2": ConnectionRefusedError()}), f"{BLOCK}: cannot be read: zk-2"),
        (UserError("there is no node /bk"), f"{BLOCK}: there is no node /bk"),
    ],
    ids=["no identity", "no layout", "away", "no such chroot"],
)
def test_what_cannot_be_served_is_refused_at_its_place_in_the_settings(
    monkeypatch: pytest.MonkeyPatch, seen: ClusterSnapshot | Exception, message: str
) -> None:
    reads(monkeypatch, seen)
    with pytest.raises(UserError, match=message):
        precheck.identify_cluster(SETTINGS, "c1", "new")


def test_a_name_that_the_settings_do_not_have_is_refused() -> None:
    with pytest.raises(UserError, match=r"--name: .* names no cluster third; it names old, new"):
        precheck.identify_cluster(SETTINGS, "c1", "third")
