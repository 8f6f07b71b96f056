"""Where each broker itself is asked, as against any of them."""

import re
from typing import Annotated

from pydantic import AfterValidator

_URL = re.compile(r"https?://(?:\{member\}|\{host\}:[0-9]{1,5})")


def _checked(url: str) -> str:
    if not _URL.fullmatch(url):
        raise ValueError("is neither http(s)://{member} nor http(s)://{host}:port, such as https://{host}:8443")
    return url


MemberUrl = Annotated[str, AfterValidator(_checked)]
"""An address for all brokers: `{member}` stands for `host:port` as a broker registers itself, `{host}` for the host."""


def url_of_member(url: MemberUrl, member: str) -> str:
    """The address of one broker."""
    return url.replace("{member}", member).replace("{host}", member.rpartition(":")[0])
