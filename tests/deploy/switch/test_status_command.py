"""`headgate switch status`: the record as it was last published, once, or each new one until the switch is over."""

import json
from typing import Any, Self

import pytest
from rich.console import Console

from deploy.settings.application import Settings
from deploy.switch import status
from deploy.switch.status import show_status
from policies.switching.decisions import SwitchRecord
from policies.switching.state import SwitchStage
from tests.connectors.switching.orders import record


class Loop:
    """What the loop publishes: one record more at each poll, as long as there are any.

    Args:
        records: one after the other.
        known: how many of them there are at first.
    """

    def __init__(self, *records: SwitchRecord, known: int = 1) -> None:
        self._known, self._ahead = list(records[:known]), list(records[known:])
        self.polls = 0

    def __call__(self, *asked: object, **more: object) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def poll(self, seconds: float) -> None:
        self.polls += 1
        assert self.polls < 100, "it never ends"
        self._known += self._ahead[:1]
        del self._ahead[:1]

    def record(self) -> SwitchRecord | None:
        return self._known[-1] if self._known else None

    def records(self) -> list[SwitchRecord]:
        return self._known


def shown(
    monkeypatch: pytest.MonkeyPatch,
    loop: Loop,
    *,
    watch: bool = False,
    as_json: bool = False,
    on_terminal: bool = False,
) -> str:
    """What a console of 200 columns is given."""
    monkeypatch.setattr(status, "LoopClient", loop)
    console = Console(width=200, force_terminal=on_terminal, record=True)
    show_status(Settings(), "c1", console, watch=watch, as_json=as_json)
    return console.export_text()


def at(*stages: str, **more: Any) -> list[SwitchRecord]:
    return [record(verdict=SwitchStage(stage), sequence=100 + n, **more) for n, stage in enumerate(stages)]


def test_it_says_where_the_switch_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[build]" in shown(monkeypatch, Loop(*at("build")))


def test_of_a_cluster_nobody_registered_it_says_how_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "begin with `headgate switch register --cluster c1`" in shown(monkeypatch, Loop())


@pytest.mark.parametrize(("loop", "verdict"), [(Loop(*at("build")), "build"), (Loop(), None)], ids=["known", "unknown"])
def test_a_program_gets_the_record_or_null(
    loop: Loop, verdict: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(monkeypatch, loop, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told and told["verdict"]) == verdict


def test_watched_by_a_program_each_new_record_is_a_line_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build, promote, hold, done, after = at("build", "promote", "hold", "done", "cleanup")
    loop = Loop(build, build, promote, hold, hold, done, after)
    shown(monkeypatch, loop, watch=True, as_json=True)
    told = [json.loads(line)["verdict"] for line in capsys.readouterr().out.splitlines()]
    assert told == ["build", "promote", "hold", "done"]


def test_watched_before_anything_is_known_it_begins_with_that(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = Loop(*at("done"), known=0)
    shown(monkeypatch, loop, watch=True, as_json=True)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each and each["verdict"] for each in told] == [None, "done"]


def test_on_a_terminal_one_view_is_drawn_anew_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, Loop(*at("build", "hold", "rolled_back")), watch=True, on_terminal=True)
    assert "[rolled_back]" in text
