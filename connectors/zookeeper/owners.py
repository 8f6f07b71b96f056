"""Parses the owner of a znode from the JSON that Pulsar's brokers and compatible services write."""

import hashlib
import re
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import from_json

from policies.sessions.readings import MAX_NAME

_ID = "brokerId"
# A broker's id has the port of its web service, so addresses of the web service come first.
_URLS = ("httpUrl", "webServiceUrl", "serviceUrl", "httpUrlTls", "webServiceUrlTls", "nativeUrl", "nativeUrlTls")
_HOST_PORT = re.compile(r".+:\d{1,5}")


def owner_member(value: bytes) -> str | None:
    """Return the member (`host:port`) that a node's value names; None if there is none."""
    document = _parse_object(value)
    named = [document.get(_ID), *(_host_and_port(document.get(key)) for key in _URLS)]
    return next((name for name in named if isinstance(name, str) and 0 < len(name) <= MAX_NAME), None)


def load_manager(value: bytes) -> str | None:
    """Return the class of a broker's load manager, by the value of its registration; None if it is not there."""
    name = _parse_object(value).get("loadManagerClassName")
    return name if isinstance(name, str) and 0 < len(name) <= MAX_NAME else None


def _parse_object(value: bytes) -> dict[str, Any]:
    try:
        document = from_json(value)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def digest(value: bytes) -> str:
    """Return a short hash of a value."""
    return hashlib.blake2b(value, digest_size=8).hexdigest()


def _host_and_port(url: Any) -> str | None:
    if not isinstance(url, str):
        return None
    try:
        place = urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:  # for example, half an IPv6 address
        return None
    return place if _HOST_PORT.fullmatch(place) else None
