"""What the demo shows: charts as wide as the terminal, sentences wrapped by words, plain lines elsewhere."""

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from deploy.commands.console import SafeConsole
from deploy.demo.charts import BarChart, resampled
from deploy.demo.screen import Screen
from deploy.demo.story import DemoSizes, Look, Phase

SIZES = DemoSizes(total=280_000_000, soft=200_000_000, hard=80_000_000, load=8_000_000)
SENTENCE = "producer_byte_rate of client-id=<default> on demo was set by the quota actuator to 7.3 MB/s a broker"


def played(console: Console, looks: int = 12) -> Screen:
    screen = Screen(console, SIZES)
    screen.begin(Phase.FILL)
    with screen:
        for number in range(looks):
            free = 280_000_000 - number * 1_500_000
            screen.look(Look(number / 2, free, 0.5, 7_300_000, 8_000_000.0))
            if number == looks // 2:
                screen.carried_out(SENTENCE)
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


@pytest.mark.parametrize("width", [60, 80, 140])
def test_once_there_is_more_than_fits_the_charts_fill_the_width(width: int) -> None:
    last = shown(width, looks=width - 20).split("─" * width)[-1]
    chart = next(line for line in last.splitlines() if line.startswith("of 280 MB"))
    bars = chart.removeprefix("of 280 MB").strip().split(" ")[0]
    assert len(bars) == min(width - 30, 120)
    assert ("soft limit" in last, "hard limit" in last, "quota 7.3 MB/s" in last) == (True, True, True)


def test_a_low_terminal_has_no_empty_lines_between_the_charts() -> None:
    def height(text: str) -> int:
        return len(text.split("─" * 80)[-1].strip().splitlines())

    assert (height(shown(80, height=40)), height(shown(80, height=18))) == (13, 10)


def test_without_a_terminal_there_are_lines_with_numbers_now_and_then_and_no_chart() -> None:
    text = shown(80, terminal=False, looks=150)
    assert "     0 s  280 MB free, factor 0.50, quota 7.3 MB/s, 8.0 MB/s produced\n" in text
    assert len(re.findall("MB free, factor", text)) == 15
    assert f"quota applied  {SENTENCE}\n" in text
    assert "█" not in text


def test_a_terminal_that_can_only_print_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    text = shown(80)
    assert "280 MB free, factor 0.50" in text
    assert "█" not in text


def test_the_picture_has_the_charts_and_asks_nothing_from_elsewhere(tmp_path: Path) -> None:
    screen = played(SafeConsole(file=StringIO(), width=80, force_terminal=True, height=40))
    screen.save_picture(tmp_path / "demo.svg")
    picture = (tmp_path / "demo.svg").read_text()
    assert "█" in picture
    assert re.findall(r'url\("?http|<image|href=', picture) == []
    assert "producer_byte_rate" in picture


def test_bars_are_as_high_as_their_values_and_what_is_more_than_nothing_is_seen() -> None:
    chart = BarChart(("", "", ""), 24.0)
    lines = chart.lines([0.0, 0.01, 1.0, 8.0, 12.0, 24.0, 99.0], [""] * 7, 7, only_ascii=False)
    assert [line.plain[16:] for line in lines] == ["     ██", "    ▄██", " ▁▁████"]
    plain = chart.lines([0.0, 1.0, 24.0], [""] * 3, 3, only_ascii=True)
    assert [line.plain[16:] for line in plain] == ["  @", "  @", " .@"]


@pytest.mark.parametrize(("count", "columns"), [(0, 8), (1, 8), (8, 8), (9, 8), (500, 8)])
def test_resampled_values_are_as_many_as_fit_from_the_first_to_the_last(count: int, columns: int) -> None:
    values = list(range(count))
    few = resampled(values, columns)
    assert len(few) == min(count, columns)
    assert few == sorted(set(few))
    assert few[:1] == values[:1]
    assert few[-1:] == values[-1:]
