"""Responses to HTTP requests."""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict, Field

HTML, JSON = "text/html; charset=utf-8", "application/json"


class ErrorDocument(BaseModel):
    """An error response."""

    model_config = ConfigDict(frozen=True)

    status: int = Field(description="The HTTP status.")
    error: str = Field(description="The reason, in one sentence.")


@dataclass(frozen=True)
class Response:
    """A body with its content type and status."""

    body: bytes = field(repr=False)
    content_type: str
    status: HTTPStatus = HTTPStatus.OK

    @cached_property
    def etag(self) -> str:
        """A digest of the body."""
        return f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'

    def is_known(self, if_none_match: str | None) -> bool:
        """Whether the client has this body already, by the header `If-None-Match`."""
        known = [each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")]
        return self.status is HTTPStatus.OK and (self.etag in known or "*" in known)


def json_response(document: BaseModel, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Make a response in ASCII, so that foreign names cannot send control characters to a terminal."""
    body = json.dumps(document.model_dump(mode="json"), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Response(f"{body}\n".encode(), JSON, status)


def error_response(status: HTTPStatus, sentence: str) -> Response:
    """Make an error response."""
    return json_response(ErrorDocument(status=status.value, error=sentence), status)
