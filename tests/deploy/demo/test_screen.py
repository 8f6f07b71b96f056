"""What the demo shows: charts as wide as the terminal, sentences wrapped by words, plain lines elsewhere."""

import re
from io import StringIO

import pytest
from rich.console import Console

from deploy.commands.terminal import SafeConsole
from deploy.demo.story import DemoSample, DemoSizes, Phase, Screen

SIZES = DemoSizes(total=280_000_000, soft=200_000_000, hard=80_000_000, load=8_000_000)
SENTENCE = "producer_byte_rate of client-id=<default> on demo was set by the quota actuator to 7.3 MB/s a broker"


def played(console: Console, looks: int = 12) -> Screen:
    screen = Screen(console, SIZES)
    screen.begin(Phase.FILL)
    with screen:
        for number in range(looks):
            free = 280_000_000 - number * 1_500_000
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


@pytest.mark.parametrize("width", [40, 60, 80, 140, 300])
def test_nothing_is_wider_than_the_terminal_and_no_word_is_cut(width: int) -> None:
    lines = shown(width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(word in " ".join(lines).split() for word in ("producer_byte_rate", "client-id=<default>", "actuator"))


def test_a_bar_for_each_number_with_its_limits_fills_the_width() -> None:
    lines = shown(100).split("─" * 100)[-1].splitlines()
    free, factor, produced = (
        next(line for line in lines if line.startswith(name)) for name in ("free", "factor", "prod")
    )
    assert "limits 200 MB, 80.0 MB" in free
    assert factor.count("━") * 2 == pytest.approx(produced.count("━"), abs=2), "half of the usual rate"
    assert "quota 7.3 MB/s" in produced


def test_without_a_terminal_there_are_lines_with_numbers_now_and_then_and_no_chart() -> None:
    text = shown(80, terminal=False, looks=150)
    assert "     0 s  280 MB free, factor 0.50, quota 7.3 MB/s, 8.0 MB/s produced\n" in text
    assert len(re.findall("MB free, factor", text)) == 15
    assert f"quota applied  {SENTENCE}\n" in text
    assert "━" not in text


def test_a_terminal_that_can_only_print_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    text = shown(80)
    assert "280 MB free, factor 0.50" in text
    assert "━" not in text
