"""Settings of the block ``alertmanager``: its URLs and how to authenticate. Off unless set."""

from collections.abc import Iterator
from pathlib import Path

import httpx
from pydantic import Field, SecretStr

from connectors.http.client import BearerAuth, bounded_client, url_problems
from connectors.http.tls import Tls
from connectors.redaction import RedactedBlock, secret
from policies.units import PositiveDuration, parse_duration


class AlertmanagerSettings(RedactedBlock):
    """Alerts go to Alertmanager, which groups, silences, routes and notifies."""

    urls: tuple[str, ...] = Field(
        min_length=1,
        max_length=16,
        description="Each Alertmanager of the cluster, such as `http://alertmanager-0:9093`; all get the alerts.",
    )
    tls: Tls | None = Field(default=None, description="For `https` only: trusted authorities, and our certificate.")
    token: SecretStr | None = Field(default=None, min_length=1, description="Sent as `Authorization: Bearer …`.")
    token_file: Path | None = Field(default=None, description="The token in a file; a changed file is used at once.")
    timeout: PositiveDuration = Field(default=parse_duration("10s"), description="Limit of one request.")
    resend_interval: PositiveDuration = Field(
        default=parse_duration("1m"),
        description="Interval at which a firing alert is sent again; it ends by itself after four intervals.",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield malformed addresses, and settings that contradict each other."""
        for url in self.urls:
            yield from url_problems("urls", url, "http://alertmanager-0:9093", "/api/v2")
        if self.tls is not None and not all(url.lower().startswith("https:") for url in self.urls):
            yield "tls", "has no meaning with an http:// address: leave it out, or use https://"

    def http_client(self) -> httpx.Client:
        """Make a client for all Alertmanagers that sends the token; each request ends within `timeout`.

        Raises:
            UserError: a certificate's file cannot be used.
        """
        client = bounded_client((self.tls or Tls()).ssl_context(), self.timeout.total_seconds())
        client.auth = BearerAuth(lambda: secret(self.token, self.token_file, "alertmanager.token_file"))
        return client
