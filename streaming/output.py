"""The output records of the query."""

from typing import NamedTuple


class Output(NamedTuple):
    """A record to write. `topic` has no prefix yet."""

    topic: str
    key: str
    value: bytes
