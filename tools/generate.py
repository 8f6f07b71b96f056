"""Writes the generated files: docs/reference, docker/ and the dashboards.

``python -m tools.generate`` writes them, ``--check`` only compares: status 1 if a file is stale, missing or left over.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from connectors.kafka.topics import RUN_PARTS
from deploy.settings.application import Settings
from tools import dashboards
from tools.reference.catalogue import catalogue, schema_of
from tools.reference.pages import alertmanager_page, alerts_page, asyncapi, events_page, metrics_page
from tools.reference.settings_page import settings_page

ROOT = Path(__file__).parents[1]
REFERENCE, DOCKER, GRAFANA = "docs/reference", "docker", "deploy/monitoring/grafana"
SCHEMAS = f"{REFERENCE}/schemas"


def generated() -> dict[str, str]:
    """Return the content of every file by its path in the repository; reproducible on any machine."""
    pages = {
        "alertmanager.yaml": alertmanager_page(),
        "alerts.md": alerts_page(),
        "asyncapi.yaml": asyncapi(),
        "events.md": events_page(),
        "metrics.md": metrics_page(),
        "settings.yaml": settings_page(),
    }
    schemas = {f"{k.event_type}.json": json.dumps(k.schema(), indent=2, ensure_ascii=False) + "\n" for k in catalogue()}
    rooms = {REFERENCE: pages, SCHEMAS: schemas, DOCKER: docker_files(), GRAFANA: dashboards.files()}
    return {f"{room}/{name}": content for room, files in rooms.items() for name, content in files.items()}


def write(files: Mapping[str, str], root: Path) -> None:
    """Write the files, and remove schemas and dashboards that are generated no longer."""
    for file in stale(files, root):
        if (content := files.get(file.relative_to(root).as_posix())) is None:
            file.unlink()
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")


def stale(files: Mapping[str, str], root: Path) -> list[Path]:
    """Return files that are missing, that differ, or that are generated no longer."""
    paths = {root / name: content for name, content in files.items()}
    differing = [path for path, content in paths.items() if not path.is_file() or path.read_text("utf-8") != content]
    left_over = {file for room in (SCHEMAS, GRAFANA) for file in (root / room).glob("*.json")} - paths.keys()
    return sorted([*differing, *left_over])


# The files of docker/.

_TEXT, _FLAG, _LIST, _MAP = ({"type": each} for each in ("string", "boolean", "array", "object"))

_POD = dict.fromkeys(("env", "envFrom", "volumes", "volumeMounts", "tolerations"), _LIST)
_POD |= dict.fromkeys(("podAnnotations", "nodeSelector", "affinity"), _MAP)
"""What values name in Kubernetes' own words; Kubernetes checks what is in it."""


def docker_files() -> dict[str, str]:
    """Return the chart's copy of the Prometheus rules, and the schema of its values, by their paths under docker/."""
    rules = Path(GRAFANA).with_name("prometheus") / "headgate.rules.yaml"
    head = f"# `make generate` writes it from {rules}.\n"
    return {
        "helm/files/headgate.rules.yaml": head + (ROOT / rules).read_text(encoding="utf-8"),
        "helm/values.schema.json": json.dumps(_chart_schema(), indent=1) + "\n",
    }


def _chart_schema() -> dict[str, Any]:
    """The schema of values.yaml: a mistyped setting of a map is refused before anything is installed."""
    settings = schema_of(Settings)
    port = {"type": "integer", "minimum": 1, "maximum": 65_535}
    own = _POD | {"resources": _MAP}
    workload = _closed(replicas={"type": "integer", "minimum": 0}, **own)
    definitions = {**settings.pop("$defs"), "Workload": workload}
    values = _closed(
        image=_closed(repository=_TEXT, tag=_TEXT, digest=_TEXT),
        imagePullSecrets=_LIST,
        serviceAccount=_closed(name=_TEXT, automountToken=_FLAG),
        parts=_closed(**{part: {"$ref": "#/$defs/Workload"} for part in RUN_PARTS}),
        jobs=_closed(check=_closed(enabled=_FLAG, resources=_MAP), topics=_closed(enabled=_FLAG, **own)),
        storage=_closed(size=_TEXT, className=_TEXT, accessModes={"type": "array", "items": _TEXT}),
        ingress=_closed(enabled=_FLAG, className=_TEXT, annotations=_MAP, host=_TEXT, tlsSecret=_TEXT),
        networkPolicy=_closed(enabled=_FLAG, egress={"type": "array", "items": _closed(port=port, endPort=port)}),
        prometheusOperator=_closed(enabled=_FLAG, labels=_MAP, endpoint=_MAP),
        **_POD,
        # Conditions in place of alternatives, so that a mistake in a map is the only one that Helm names.
        settings={"if": _MAP, "then": settings, "else": {"type": ["string", "null"]}},
        **{"global": _MAP},
    )
    return {"$schema": "http://json-schema.org/draft-07/schema#", "$defs": definitions, **values}


def _closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare the files; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a file is stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder that has docs/, docker/ and deploy/")
    given = parser.parse_args(arguments)
    files = generated()
    if not given.check:
        write(files, given.root)
        return 0
    found = stale(files, given.root)
    for file in found:
        sys.stderr.write(f"{file} is stale: run `make generate`\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
