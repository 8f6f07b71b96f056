"""The table of versions is what the last run noted."""

from tests.system.compatibility_table import PAGE, page


def test_the_page_is_what_the_last_run_noted() -> None:
    assert PAGE.read_text() == page()
