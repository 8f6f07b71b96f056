"""What tests of Spark need."""

import pytest

from deploy.java.jvm import find_java
from policies.units import UserError


@pytest.fixture(scope="session")
def java() -> None:
    """Skip without Java."""
    try:
        find_java()
    except UserError as error:
        pytest.skip(str(error))
