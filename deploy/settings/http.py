"""The settings of the HTTP listeners."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from connectors.http.access import HttpAccess
from deploy.settings.blocks import SettingsBlock

_PAGE_URL = re.compile(r"https?://[^\s?#@]+")


def _check_host(host: str) -> str:
    if not host.strip():  # servers take an empty host as every address
        raise ValueError("is empty: name the address to listen on: 127.0.0.1, or 0.0.0.0 for all addresses")
    return host


class HttpSettings(SettingsBlock):
    """The address of /metrics, /-/healthy and /-/ready, and of the exporter's status page."""

    host: Annotated[str, AfterValidator(_check_host)] = Field(
        default="127.0.0.1", description="Address to listen on; `0.0.0.0` for a Prometheus on another machine."
    )
    port: int = Field(default=9408, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    probes_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of a second listener with /-/healthy and /-/ready alone, which no client of the page fills.",
    )
    host_names: list[Annotated[str, Field(min_length=1, max_length=253)]] = Field(
        default_factory=list,
        max_length=100,
        description="Public names of this server. A request by another one gets status 421, because a web page "
        "elsewhere may have sent it (DNS rebinding). Addresses, the machine's name and names without a public domain "
        "need no entry.",
    )
    access: HttpAccess | None = Field(
        default=None,
        description="Tokens and TLS. Off: open to every client, unencrypted. /-/healthy and /-/ready are always open.",
    )

    public_url: str | None = Field(
        default=None,
        description="The status page's address for people, such as `https://headgate.example.org`: notifications of "
        "Alertmanager link to its pages of clusters and runbooks.",
    )

    @field_validator("public_url")
    @classmethod
    def _complete_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        url = url.rstrip("/") if "://" in url else f"https://{url.rstrip('/')}"
        if not _PAGE_URL.fullmatch(url):
            raise ValueError("is no address such as https://headgate.example.org, without user, query and fragment")
        return url

    @field_validator("access")
    @classmethod
    def _refuse_open_access(cls, access: HttpAccess | None) -> HttpAccess | None:
        """Refuse an empty block, because its author wants restricted access and would get none."""
        if access == HttpAccess():
            raise ValueError("names no token and no certificate, so every client has access: set one, or leave it out")
        return access

    def url(self, port: int) -> str:
        """Return the URL, given the port in use."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.access and self.access.cert_file else 'http'}://{host}:{port}"
