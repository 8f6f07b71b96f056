"""Posts alerts to one Alertmanager."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import httpx
import structlog

from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.collection.read_errors import one_line
from connectors.http.tls import stamps_of
from policies.errors import UserError

_BATCH = 256
_MAX_ANSWER_BYTES = 2_000
_ALERTS = "/api/v2/alerts"

_log = structlog.get_logger(__name__)


class AlertmanagerClient:
    """The HTTP client for all Alertmanagers, made again when the files of its certificates change.

    Raises:
        UserError: a file of the certificates cannot be used.
    """

    def __init__(self, settings: AlertmanagerSettings) -> None:
        self._settings = settings
        self._stamps = stamps_of(settings.tls)
        self._client = settings.http_client()

    def current(self) -> httpx.Client:
        """Return the client; while new files cannot be used, the one with the old files."""
        if (stamps := stamps_of(self._settings.tls)) != self._stamps:
            try:
                renewed = self._settings.http_client()
            except UserError as error:
                _log.warning("the new certificate for Alertmanager is not used", detail=str(error))
            else:
                self._client.close()
                self._client = renewed
            self._stamps = stamps
        return self._client

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


class PostError(Exception):
    """Alertmanager did not accept all alerts; the message is one short line without secrets."""


class RefusedError(PostError):
    """It answered, and refused a request; it may accept others."""


def post_alerts(client: httpx.Client, url: str, bodies: Sequence[dict[str, Any]]) -> None:
    """Post all alerts to one Alertmanager, one severity after the other, so that causes arrive before their effects.

    An alert that it refuses keeps back no others. `bodies` are alerts in the form of its API.

    Raises:
        PostError: it did not accept all of them.
    """
    refused: RefusedError | None = None
    for _, group in groupby(bodies, key=lambda body: body["labels"].get("severity")):
        of_severity = list(group)
        for start in range(0, len(of_severity), _BATCH):
            try:
                _post(client, f"{url.rstrip('/')}{_ALERTS}", of_severity[start : start + _BATCH])
            except RefusedError as error:
                refused = refused or error
    if refused is not None:
        raise refused


def _post(client: httpx.Client, url: str, bodies: Sequence[dict[str, Any]]) -> None:
    try:
        with client.stream("POST", url, json=bodies) as response:
            if not response.is_success:
                raise RefusedError(one_line(f"status {response.status_code}: {_answer(response)}"))
    except httpx.TimeoutException:
        raise PostError("no answer in time") from None
    except (httpx.HTTPError, UserError) as error:
        raise PostError(one_line(str(error) or type(error).__name__)) from None


def _answer(response: httpx.Response) -> str:
    """Read the beginning of the answer."""
    return next(response.iter_bytes(_MAX_ANSWER_BYTES), b"").decode(errors="replace")
