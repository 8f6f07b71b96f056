"""The demo's story goes on by what is decided, carried out and measured, and by nothing else."""

import re
from contextlib import nullcontext
from io import StringIO

import pytest
from rich.console import Console

from deploy.console.terminal import SafeConsole
from deploy.demo.story import DemoSample, Phase, Screen
from tests.cases import for_each

LOAD = 8_000_000


def sample(factor: float = 1.0, quota: int | None = None, produced: float = LOAD) -> DemoSample:
    return DemoSample(10, 100_000_000, factor, quota, produced)


@for_each(
    ("phase", "ends", "stays"),
    [
        (Phase.FILL, [sample(0.9, 7_000_000)], [sample(), sample(0.9)]),  # the last one is decided, not carried out
        (Phase.THROTTLE, [sample(0.0, 500_000)], [sample(0.05, 500_000, produced=0)]),
        (Phase.STOP, [sample(0.0, 65_536, produced=0)], [sample(0.0, 65_536, produced=0.2 * LOAD)]),
        (
            Phase.RECOVERY,
            [sample()],
            [sample(produced=0), sample(1.0, 65_536), sample(0.9)],  # a rate, a quota and a factor are not as before
        ),
        (Phase.DONE, [], [sample()]),
    ],
)
def test_a_phase_lasts_until_its_end_is_seen(phase: Phase, ends: list[DemoSample], stays: list[DemoSample]) -> None:
    assert all(phase.ends_with(each) for each in ends)
    assert not any(phase.ends_with(each) for each in stays)
    assert phase is Phase.DONE or phase.next() is list(Phase)[list(Phase).index(phase) + 1]


# --- What the demo shows: charts as wide as the terminal, sentences wrapped by words, plain lines elsewhere

SENTENCE = "producer_byte_rate of client-id=<default> on demo was set by the quota actuator to 7.3 MB/s a broker"


def played(console: Console, looks: int = 12) -> Screen:
    screen = Screen(console)
    screen.begin(Phase.FILL)
    with screen.live or nullcontext():
        for number in range(looks):
            free = 200_000_000 - number * 1_000_000
            screen.show_sample(DemoSample(number / 2, free, 0.5, 7_300_000, 8_000_000.0))
            if number == looks // 2:
                screen.show_action(SENTENCE)
                screen.begin(Phase.THROTTLE)
    return screen


def shown(width: int, height: int = 40, *, terminal: bool = True, looks: int = 12) -> str:
    file = StringIO()
    console = SafeConsole(
        file=file, width=width, height=height, force_terminal=terminal, color_system=None, highlight=False
    )
    console.soft_wrap = not terminal
    played(console, looks)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())


@for_each("width", [40, 60, 80, 140, 300])
def test_nothing_is_wider_than_the_terminal_and_no_word_is_cut(width: int) -> None:
    lines = shown(width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(word in " ".join(lines).split() for word in ("producer_byte_rate", "client-id=<default>", "actuator"))


def test_a_bar_for_each_number_with_its_limits_fills_the_width() -> None:
    lines = shown(100).split("─" * 100)[-1].splitlines()
    names = ("free", "factor", "prod")
    free, factor, produced = (next(line for line in lines if line.startswith(name)) for name in names)
    assert "limits 140 MB, 80.0 MB" in free
    assert factor.count("━") * 2 == pytest.approx(produced.count("━"), abs=2), "half of the usual rate"
    assert "quota 7.3 MB/s" in produced


def test_without_a_terminal_there_are_lines_with_numbers_now_and_then_and_no_chart() -> None:
    text = shown(80, terminal=False, looks=150)
    assert "     0 s  200 MB free, factor 0.50, quota 7.3 MB/s, 8.0 MB/s produced\n" in text
    assert len(re.findall("MB free, factor", text)) == 15
    assert f"quota applied  {SENTENCE}\n" in text
    assert "━" not in text


def test_a_terminal_that_can_only_print_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    text = shown(80)
    assert "200 MB free, factor 0.50" in text
    assert "━" not in text
