"""What tests of Spark need."""

import pytest

from deploy.java.jvm import find_java
from policies.errors import UserError
from tests.system import class_archives


@pytest.fixture(scope="session")
def java() -> None:
    """Skip without Java; JVMs start from their class archives."""
    try:
        find_java()
    except UserError as error:
        pytest.skip(str(error))
    class_archives.use()
