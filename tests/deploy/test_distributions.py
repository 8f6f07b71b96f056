"""The pages that the wheel carries."""

import pytest

from deploy.pages import Page


@pytest.mark.parametrize(("page", "begins"), [(Page.SETTINGS, "# "), (Page.ALERTS, "# "), (Page.METRICS, "# ")])
def test_an_installation_carries_its_reference_pages(page: Page, begins: str) -> None:
    assert page.read().startswith(begins)
