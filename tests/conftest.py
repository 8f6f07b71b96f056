"""Options of the whole suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where servers for system tests come from."""
    parser.addoption(
        "--containers", action="store_true", help="Take servers from testcontainers (needs a Docker engine)."
    )
