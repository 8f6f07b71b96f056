"""Responses to HTTP requests."""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict, Field

HTML, JSON = "text/html; charset=utf-8", "application/json"


class ErrorDocument(BaseModel):
    """Why there is no answer."""

    model_config = ConfigDict(frozen=True)

    status: int = Field(description="As in the answer's first line.")
    error: str = Field(description="One sentence.")


@dataclass(frozen=True)
class Response:
    """A body, and what it is."""

    body: bytes = field(repr=False)
    content_type: str
    status: HTTPStatus = HTTPStatus.OK

    @cached_property
    def etag(self) -> str:
        """Changes with the body."""
        return f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'

    def is_known(self, if_none_match: str | None) -> bool:
        """Whether who asks has this body, by the header `If-None-Match`."""
        known = [each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")]
        return self.status is HTTPStatus.OK and (self.etag in known or "*" in known)


def json_response(document: BaseModel, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """A document; in ASCII, so that no name that others chose makes a terminal do anything."""
    body = json.dumps(document.model_dump(mode="json"), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Response(f"{body}\n".encode(), JSON, status)


def error_response(status: HTTPStatus, sentence: str) -> Response:
    """Why there is no answer."""
    return json_response(ErrorDocument(status=status.value, error=sentence), status)
