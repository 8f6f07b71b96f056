"""Posts alerts to one Alertmanager and reports the outcome in one short line without secrets."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import httpx

from connectors.collection.read_errors import one_line
from policies.errors import UserError

_BATCH = 256
_MOST_SAID_BYTES = 2_000
_PATH = "/api/v2/alerts"


class PostError(Exception):
    """Not all alerts were taken; the message says why in one short line."""


def post_alerts(client: httpx.Client, url: str, bodies: Sequence[dict[str, Any]]) -> None:
    """Tell one Alertmanager of all alerts, each severity by itself, so that causes are known before their effects.

    Args:
        client: see `AlertmanagerSettings.http_client`.
        url: of the Alertmanager.
        bodies: as its API takes them.

    Raises:
        PostError: it did not take all of them.
    """
    for _, group in groupby(bodies, key=lambda body: body["labels"].get("severity")):
        of_severity = list(group)
        for start in range(0, len(of_severity), _BATCH):
            _post(client, f"{url.rstrip('/')}{_PATH}", of_severity[start : start + _BATCH])


def _post(client: httpx.Client, url: str, bodies: Sequence[dict[str, Any]]) -> None:
    try:
        with client.stream("POST", url, json=list(bodies)) as response:
            if not response.is_success:
                raise PostError(one_line(f"status {response.status_code}: {_said(response)}"))
    except httpx.TimeoutException:
        raise PostError("no answer in time") from None
    except (httpx.HTTPError, UserError) as error:
        raise PostError(one_line(str(error) or type(error).__name__)) from None


def _said(response: httpx.Response) -> str:
    """The beginning of its answer: more is not read, whatever the client would take."""
    said = b""
    for chunk in response.iter_bytes(_MOST_SAID_BYTES):
        said += chunk
        if len(said) >= _MOST_SAID_BYTES:
            break
    token = response.request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
    return (said.replace(token, b"***") if token else said)[:_MOST_SAID_BYTES].decode(errors="replace")
