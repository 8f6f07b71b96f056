"""A bookie's configuration: paths and numbers as Java reads them."""

import pytest

from connectors.bookie_disks.collector import list_ledger_dirs, parse_java_number, read_thresholds
from tests.cases import for_each


@for_each(
    ("text", "number"),
    [
        ("0.95", 0.95), ("0.95f", 0.95), ("0.95F", 0.95), ("1d", 1.0), ("1.D", 1.0), (".9", 0.9), ("+0.9", 0.9),
        (" 0.95\t", 0.95), ("9.5e-1", 0.95), ("95E-2f", 0.95), ("0,95", None), ("95%", None), ("", None), ("f", None),
        ("0_9", None), ("NaN", None), ("nan", None), ("Infinity", None), ("0.9.5", None), ("0.95 f", None),
        ("[0.9, 0.8]", None),
    ],
)  # fmt: skip
def test_numbers_are_read_as_java_reads_them(text: str, number: float | None) -> None:
    assert parse_java_number(text) == number


def test_what_is_no_share_is_said_and_the_other_threshold_stands() -> None:
    found, problem = read_thresholds({"diskUsageThreshold": "95", "diskUsageWarnThreshold": "0.9f"})
    assert found is not None
    assert (found.read_only, found.major_compaction, found.minor_compaction) == (None, 0.9, None)
    assert problem == "diskUsageThreshold is '95', and should be a share from 0 to 1, such as 0.95"
    found, problem = read_thresholds({"diskUsageThreshold": "x", "diskUsageWarnThreshold": "y"})
    assert found is None
    assert problem is not None
    found, problem = read_thresholds({})
    assert found is not None
    assert (found.read_only, found.major_compaction, problem) == (0.95, 0.9, None)


@pytest.mark.parametrize(
    ("text", "dirs"),
    [
        ("[/mnt/l0/, //mnt//l1//]", ("/mnt/l0", "/mnt/l1")),
        ("/mnt/l0,/mnt/l0/", ("/mnt/l0",)),
        ("/", ("/",)),
        ("data/bk/", ("data/bk",)),
    ],
)
def test_dirs_are_written_as_java_writes_paths(text: str, dirs: tuple[str, ...]) -> None:
    assert list_ledger_dirs({"ledgerDirectories": text}) == dirs
