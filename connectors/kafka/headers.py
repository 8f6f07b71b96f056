"""The headers of the loop's records: content type and signature."""

import time

import structlog
from confluent_kafka import Message

from policies.signatures import HEADER, Serial, Signatures
from policies.wire import CONTENT_TYPE

_LOG_AGAIN_SECONDS = 60.0

_log = structlog.get_logger(__name__)

Headers = dict[str, str | bytes | None]


def record_headers(
    signatures: Signatures | None, topic: str, key: str, value: bytes | None, serial: Serial | None = None
) -> Headers:
    """Make a record's headers; the signature's time is now, and `serial` is the record's place among the sender's."""
    headers: Headers = {"content-type": CONTENT_TYPE}
    signature = signatures and signatures.sign(topic, key, value, time.time_ns() // 1_000_000, serial)
    return headers if not signature else {**headers, HEADER: signature}


def refusal(signatures: Signatures | None, message: Message) -> str | None:
    """Return one clause if a record's signature does not hold; None if it holds, or if records are not signed."""
    if signatures is None:
        return None
    key, value, topic = encoded(message.key()), encoded(message.value()), message.topic() or ""
    return signatures.refusal(topic, key, value, signature_of(message), message.timestamp()[1])


class RefusedRecordLog:
    """Logs records with a bad signature: the first one of a topic at once, then a count every minute."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._log_at: dict[str, float] = {}

    def note(self, topic: str, detail: str) -> None:
        """Count a record; `detail` names it and the reason."""
        self._counts[topic], now = self._counts.get(topic, 0) + 1, time.monotonic()
        if now >= self._log_at.get(topic, now):
            _log.warning("records are ignored: their signatures do not hold", count=self._counts[topic], last=detail)
            self._counts[topic], self._log_at[topic] = 0, now + _LOG_AGAIN_SECONDS


def signature_of(message: Message) -> str | None:
    """Return the signature header; the last one if there are several."""
    found = [header[1] for header in message.headers() or () if header[0] == HEADER]
    if not found:
        return None
    return found[-1].decode(errors="replace") if isinstance(found[-1], bytes) else found[-1] or ""


def encoded(value: str | bytes | None) -> bytes | None:
    """Return a key or value as bytes; confluent-kafka's types allow text, too."""
    return value.encode() if isinstance(value, str) else value
