"""The plot of a fill: well-formed, true to its course, and legible without seeing it."""

import re
from datetime import timedelta
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from connectors.exporter.page.history import HOUR, POINTS, Course, Moment
from connectors.exporter.page.plot import COLUMNS, Plot, draw_fill
from connectors.views import Fill
from tests.connectors.exporter.page.world import START

GB = 1e9
SIZES = st.floats(0, 1e16) | st.just(0.0)
NAMES = st.sampled_from(("broker 1 /a", "broker 2 /b", "<script>'\"&\x1b[31m"))
FILLS = st.builds(
    Fill, place=NAMES, free_bytes=SIZES, soft_bytes=st.none() | SIZES, hard_bytes=st.none() | SIZES,
    factor=st.none() | st.floats(0, 1),
)  # fmt: skip
MOMENTS = st.builds(Moment, st.just(START), FILLS, st.none() | st.floats(-1e12, 1e12))


@st.composite
def courses(draw: st.DrawFn) -> Course:
    moments = draw(st.lists(st.none() | MOMENTS, max_size=POINTS - 1))
    return Course(HOUR, (*moments, draw(MOMENTS)))


def moment(free: float, rate: float | None = None, at: int = 0, place: str = "broker 1 /a") -> Moment:
    fill = Fill(place, free, 5 * GB, 1 * GB, 0.75)
    return Moment(START + at * timedelta(seconds=15), fill, rate)


def drawn(*moments: Moment | None) -> Plot:
    return draw_fill(Course(HOUR, moments))


def texts(plot: Plot) -> list[str]:
    return ["".join(each.itertext()) for each in ET.fromstring(plot.svg).iter("text")]


def curve(plot: Plot, kind: str) -> str:
    paths = [each.get("d", "") for each in ET.fromstring(plot.svg).iter("path") if each.get("class") == kind]
    return "".join(paths)


@given(courses())
def test_any_course_is_drawn_inside_its_panels_without_styles_or_scripts(course: Course) -> None:
    plot = draw_fill(course)
    root = ET.fromstring(plot.svg)
    assert {each.tag for each in root.iter()} <= {"svg", "text", "tspan", "line", "path", "rect", "title"}
    assert not any("style" in each.attrib for each in root.iter())
    for panel in root.findall("svg"):
        height = float(panel.attrib["height"])
        for path in panel.iter("path"):
            ys = [float(y) for y in re.findall(r"[,V](-?[\d.]+)", path.attrib["d"])]
            assert all(0 <= y <= height for y in ys)
    width = max(COLUMNS, len(course.moments))
    begin = width - len(course.moments)
    columns = {number * COLUMNS // width for number, each in enumerate(course.moments, begin) if each is not None}
    assert len(root.findall("rect")) == len(columns) == len(plot.rows)


def test_titles_name_both_limits_and_the_present_rate() -> None:
    shown, unknown = texts(drawn(moment(4 * GB, 2e6))), texts(drawn(moment(4 * GB, 2e6), None))
    limits = "Free spacesoft limit 5.0 GBhard limit 1.0 GB"
    assert {limits, "Factor", "Fills at 2.0 MB/s, deletions deducted"} <= set(shown)
    assert {limits, "Factor", "Fills at an unknown rate, deletions deducted"} <= set(unknown)


def test_a_gap_begins_a_new_line_and_another_disk_does_not() -> None:
    other = moment(9 * GB, place="broker 2 /b")
    for moments, strokes in (
        ((moment(1 * GB), moment(2 * GB)), 1),
        ((moment(1 * GB), None, moment(2 * GB)), 2),
        ((moment(1 * GB), other), 1),
        ((other, None, None, moment(1 * GB)), 2),
    ):
        assert curve(drawn(*moments), "free").count("M") == strokes, moments


def test_less_free_space_is_lower_and_limits_are_where_the_free_space_reaches_them() -> None:
    plot = drawn(moment(6 * GB), moment(5 * GB), moment(1 * GB))
    first, soft, hard = (float(y) for y in re.findall(r",([\d.]+)", curve(plot, "free")))
    assert first < soft < hard
    assert re.findall(r",([\d.]+)", curve(plot, "soft limit")) == [f"{soft:g}"]
    assert re.findall(r",([\d.]+)", curve(plot, "hard limit")) == [f"{hard:g}"]


def test_hover_table_and_label_tell_the_values() -> None:
    plot = drawn(moment(4 * GB, 2e6), moment(3 * GB, 1e6, at=1))
    told = "2026-11-21 08:00 UTC, broker 1 /a: 3.0 GB free, factor 0.75, fills at 1.0 MB/s; soft limit 5.0 GB"
    told += "; hard limit 1.0 GB"
    root = ET.fromstring(plot.svg)
    first, last = (str(each.text) for each in root.iter("title"))
    assert first == told.replace("3.0 GB free", "4.0 GB free").replace("1.0 MB", "2.0 MB")
    assert last == told
    assert root.get("aria-label") == f"Free space from 3.0 GB to 4.0 GB; now {told}"
    assert [row.moment.fill.free_bytes for row in plot.rows] == [3 * GB, 4 * GB]


def test_a_course_that_began_lately_has_the_whole_width_and_a_column_shows_its_least() -> None:
    short, whole = drawn(moment(4 * GB)), drawn(*(moment(free * GB) for free in range(1, POINTS + 1)))
    assert [text for text in texts(short) if text.endswith("min")] == ["-12 min", "-9 min", "-6 min", "-3 min"]
    assert [text for text in texts(whole) if text.endswith("min")] == ["-60 min", "-45 min", "-30 min", "-15 min"]
    assert [row.moment.fill.free_bytes / GB for row in whole.rows] == [1 + 5 * column for column in range(COLUMNS)][
        ::-1
    ]


def test_deletions_much_faster_than_the_fill_do_not_flatten_it() -> None:
    plot = drawn(moment(4 * GB, 2e6), moment(4 * GB, -5e9))
    assert {"2.0 MB/s", "-2.0 MB/s"} <= set(texts(plot))
