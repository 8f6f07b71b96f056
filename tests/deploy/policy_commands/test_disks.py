"""`headgate disks`: each group with its bookies, the best first, and the one that decides."""

import json
from pathlib import Path

import pytest

from deploy.policy_commands import disks as command
from deploy.settings.application import Settings
from deploy.settings.file import load_settings
from policies.observations import Outcome, Reading
from policies.units import UserError
from tests.policies.bookie_disks.scenario import all_disks, failed
from tests.policies.cases_of_bookies import affinity, racks

GROUPS = {"g1": "b1 b2", "g2": "b3 b4"}
GOOD = [o.reading for o in (racks(0, GROUPS), affinity(0, {"a/b": "g1"}), *all_disks(0, b1=50, b2=16, b3=60, b4=70))]


def shown(readings: list[Reading], monkeypatch: pytest.MonkeyPatch, *, as_json: bool) -> None:
    monkeypatch.setattr(command, "_read", lambda *_: readings)
    command.show_disks(Settings(), "c1", as_json=as_json)


def test_a_group_names_what_decides(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown(GOOD, monkeypatch, as_json=True)
    groups = {each["group"]: each for each in json.loads(capsys.readouterr().out)}
    assert {name: (each["factor"], each["decides"]) for name, each in groups.items()} == {
        "g1": (0.5, "b2"), "default": (1.0, "b3"),
    }  # fmt: skip
    assert [b["bookie"] for b in groups["g1"]["bookies"]] == ["b1", "b2"]


def test_an_unread_bookie_is_named_below(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown([*GOOD, failed(0, "b9").reading], monkeypatch, as_json=False)
    out = capsys.readouterr().out
    assert "group g1: factor 0.50 (soft_limit), 1 namespace, ensembles of 2" in out
    assert "c1/b9: not read (unsupported, no answer)" in out


def test_without_any_good_reading_it_is_an_error_with_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"c1/b1: cannot be read \(timeout, no answer\)"):
        shown([failed(0, "b1", Outcome.TIMEOUT).reading], monkeypatch, as_json=True)


@pytest.mark.parametrize(
    ("cluster", "said"), [("nobody", "settings name no cluster 'nobody'"), ("messaging", "bookie_disks: is not set")]
)
def test_a_cluster_that_is_not_watched_is_named(cluster: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text('clusters: {messaging: {pulsar: {admin_url: "http://127.0.0.1:1"}}}')
    with pytest.raises(UserError, match=said):
        command.show_disks(load_settings(file), cluster, as_json=False)
