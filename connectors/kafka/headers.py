"""The header of the loop's records, and keys and values as bytes."""

from policies.wire import CONTENT_TYPE

HEADERS: dict[str, str | bytes | None] = {"content-type": CONTENT_TYPE}


def encoded(value: str | bytes | None) -> bytes | None:
    """Return a key or value as bytes; confluent-kafka's types allow text, too."""
    return value.encode() if isinstance(value, str) else value
