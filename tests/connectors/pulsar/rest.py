"""The admin REST in memory."""

from typing import Any

import httpx

from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin


class Server:
    """Gives its answers one after the other, the last one for good; and keeps what it was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = list(answers) or [httpx.Response(200, json=[])]
        self.transport = httpx.MockTransport(self._take)

    def api(self, **settings: Any) -> AdminApi:
        return AdminApi(PulsarAdmin(**{"admin_url": "https://pulsar:8443", **settings}), self.transport)

    def authorizations(self) -> list[str | None]:
        return [request.headers.get("Authorization") for request in self.requests]

    def _take(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
