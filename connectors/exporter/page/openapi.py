"""The API's description: OpenAPI 3.1, generated from the response models."""

import json
from functools import cache
from typing import Any

from pydantic.json_schema import models_json_schema

from connectors.exporter.page.documents import (
    AlertsDocument,
    DecisionsDocument,
    HistoryDocument,
    cluster_model,
    clusters_model,
    loop_model,
)
from connectors.exporter.version import VERSION
from connectors.http.responses import JSON, ErrorDocument

API = "/api/v1"

_DESCRIPTION = """\
The present state of each cluster, as the status page at `/` shows it. Read-only: methods other than GET and HEAD get
405. Each response has an `ETag`. A request that sends it back as `If-None-Match` gets 304 without a body while the
content is unchanged. If a token is set in `http.access`, requests must send it as a bearer token, or as the password of
basic authentication."""

_CLUSTER = {
    "name": "cluster",
    "in": "path",
    "required": True,
    "description": "The cluster's name in the settings, percent-encoded.",
    "schema": {"type": "string"},
}


@cache
def openapi() -> dict[str, Any]:
    """Return the document as data."""
    models = {**{path: model for path, (model, _) in _paths().items()}, "": ErrorDocument}
    references, definitions = models_json_schema(
        [(model, "serialization") for model in dict.fromkeys(models.values())],
        ref_template="#/components/schemas/{model}",
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headgate status",
            "version": VERSION,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"bearer": []}, {"basic": []}],
        "paths": {
            f"{API}{path}": _describe_path(path, summary, references[model, "serialization"])
            for path, (model, summary) in _paths().items()
        },
        "components": {
            "schemas": definitions["$defs"],
            "responses": {
                name: {"description": text, "content": {JSON: {"schema": references[ErrorDocument, "serialization"]}}}
                for name, text in (
                    ("NotFound", "The path or cluster does not exist."),
                    ("MethodNotAllowed", "Only GET and HEAD are served, see `Allow`."),
                    ("Unauthorized", "A token is required."),
                )
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            },
        },
    }


@cache
def openapi_text() -> str:
    """Return the document as text."""
    return json.dumps(openapi(), indent=2, ensure_ascii=True) + "\n"


def _paths() -> dict[str, tuple[Any, str]]:
    return {
        "/status": (loop_model(), "The whole loop: each cluster with its policies, and the number of firing alerts."),
        "/clusters": (clusters_model(), "All clusters."),
        "/clusters/{cluster}": (cluster_model(), "One cluster."),
        "/alerts": (AlertsDocument, "The firing alerts, by severity."),
        "/decisions": (DecisionsDocument, "The last decisions and alerts that changed anything, the newest first."),
        "/history": (HistoryDocument, "Numbers of the last hour."),
    }


def _describe_path(path: str, summary: str, schema: Any) -> dict[str, Any]:
    etag = {"ETag": {"description": "Changes with the body.", "schema": {"type": "string"}}}
    responses: dict[str, dict[str, Any]] = {
        "200": {"description": summary, "headers": etag, "content": {JSON: {"schema": schema}}},
        "304": {"description": "The content is unchanged since `If-None-Match`.", "headers": etag},
        "401": {"$ref": "#/components/responses/Unauthorized"},
        "405": {"$ref": "#/components/responses/MethodNotAllowed"},
    }
    parameters = [_CLUSTER] if "{cluster}" in path else []
    if parameters:
        responses["404"] = {"$ref": "#/components/responses/NotFound"}
    name = path.strip("/").partition("/")[0] if not parameters else "cluster"
    of_get = {"operationId": f"get-{name}", "summary": summary, "responses": responses}
    bodiless = {code: {k: v for k, v in r.items() if k != "content"} for code, r in responses.items()}
    of_head = {"operationId": f"head-{name}", "summary": f"{summary} Without its body.", "responses": bodiless}
    return {**({"parameters": parameters} if parameters else {}), "get": of_get, "head": of_head}
