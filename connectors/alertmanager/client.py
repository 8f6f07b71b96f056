"""Posts alerts to one Alertmanager."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import httpx

from connectors.collection.read_errors import one_line
from policies.errors import UserError

_BATCH = 256
_MAX_ANSWER_BYTES = 2_000
_PATH = "/api/v2/alerts"


class PostError(Exception):
    """Alertmanager did not accept all alerts; the message is one short line without secrets."""


def post_alerts(client: httpx.Client, url: str, bodies: Sequence[dict[str, Any]]) -> None:
    """Post all alerts to one Alertmanager, one severity after the other, so that causes arrive before their effects.

    `bodies` are alerts in the form of its API.

    Raises:
        PostError: it did not accept all of them.
    """
    for _, group in groupby(bodies, key=lambda body: body["labels"].get("severity")):
        of_severity = list(group)
        for start in range(0, len(of_severity), _BATCH):
            _post(client, f"{url.rstrip('/')}{_PATH}", of_severity[start : start + _BATCH])


def _post(client: httpx.Client, url: str, bodies: Sequence[dict[str, Any]]) -> None:
    try:
        with client.stream("POST", url, json=list(bodies)) as response:
            if not response.is_success:
                raise PostError(one_line(f"status {response.status_code}: {_answer(response)}"))
    except httpx.TimeoutException:
        raise PostError("no answer in time") from None
    except (httpx.HTTPError, UserError) as error:
        raise PostError(one_line(str(error) or type(error).__name__)) from None


def _answer(response: httpx.Response) -> str:
    """Read at most the beginning of the answer, and remove our token from it."""
    answer = b""
    for chunk in response.iter_bytes(_MAX_ANSWER_BYTES):
        answer += chunk
        if len(answer) >= _MAX_ANSWER_BYTES:
            break
    token = response.request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
    return (answer.replace(token, b"***") if token else answer)[:_MAX_ANSWER_BYTES].decode(errors="replace")
