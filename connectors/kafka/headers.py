"""Headers of the loop's records."""

import time

import structlog
from confluent_kafka import Message

from policies.signatures import HEADER, Signatures
from policies.wire import CONTENT_TYPE

_SAY_AGAIN_SECONDS = 60.0

_log = structlog.get_logger(__name__)

Headers = dict[str, str | bytes | None]


def record_headers(signatures: Signatures | None, topic: str, key: str, value: bytes | None) -> Headers:
    """What the value is and, where records of this topic are signed, the signature; it counts from now."""
    headers: Headers = {"content-type": CONTENT_TYPE}
    signature = signatures and signatures.sign(topic, key, value, time.time_ns() // 1_000_000)
    return headers if not signature else {**headers, HEADER: signature}


def refusal(signatures: Signatures | None, message: Message) -> str | None:
    """Why a record is not believed, in one clause; None: it is, or nobody signs."""
    if signatures is None:
        return None
    key, value, topic = _bytes(message.key()), _bytes(message.value()), message.topic() or ""
    return signatures.refusal(topic, key, value, signature_of(message), message.timestamp()[1])


class Unbelieved:
    """Says of records that are not signed as they should be: the first of a topic, then how many every minute."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._say_at: dict[str, float] = {}

    def note(self, topic: str, detail: str) -> None:
        """Take in one more of a topic; `detail` says which, and why."""
        self._counts[topic], now = self._counts.get(topic, 0) + 1, time.monotonic()
        if now >= self._say_at.get(topic, now):
            _log.warning("records are left out: their signatures do not hold", count=self._counts[topic], last=detail)
            self._counts[topic], self._say_at[topic] = 0, now + _SAY_AGAIN_SECONDS


def signature_of(message: Message) -> str | None:
    """The signature as it came; the last one, where somebody added another."""
    found = [header[1] for header in message.headers() or () if header[0] == HEADER]
    return _text(found[-1]) if found else None


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
