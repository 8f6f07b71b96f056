"""The tests mirror the tree, so that whoever changes a module knows where its tests are."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("policies", "streaming", "connectors", "deploy")

TESTED_ELSEWHERE = {"deploy/submit": "what spark-submit is given, in tests/deploy/query/test_components.py"}
"""Folders of the product without tests of the same name, and where those are."""

OF_THEIR_OWN = {"tests/system", "tests/toy"}
"""Folders of tests that mirror none: they are of all parts together."""


def folders_of_the_product() -> set[Path]:
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py") if file.name != "__init__.py"]
    return {file.parent.relative_to(ROOT) for file in files}


def has_tests(folder: Path) -> bool:
    """In a folder of the same name, or, of a small one, in a file of that name."""
    mirror = ROOT / "tests" / folder
    return any(mirror.glob("test_*.py")) or mirror.with_name(f"test_{mirror.name}.py").exists()


def is_of_the_product(name: Path) -> bool:
    """Whether a folder or a module has this name."""
    return name.is_dir() or name.with_suffix(".py").exists()


def test_each_folder_has_tests_under_its_own_name() -> None:
    without = {str(folder) for folder in folders_of_the_product() if not has_tests(folder)}
    assert without == TESTED_ELSEWHERE.keys()


def test_each_folder_of_tests_has_the_name_of_what_it_tests() -> None:
    folders = {file.parent.relative_to(ROOT) for file in (ROOT / "tests").rglob("test_*.py")}
    nameless = {str(folder) for folder in folders if not is_of_the_product(ROOT / folder.relative_to("tests"))}
    assert nameless == OF_THEIR_OWN
