"""The software bill of materials: a CycloneDX list of Python packages and jars with version and checksum.

It is made from the files that the installation itself uses, and its bytes are reproducible.
"""

import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

_ROOT = Path(__file__).parents[2]
_JARS = _ROOT / "deploy" / "java" / "jars.sha256"
_PACKAGE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_JAR = re.compile(
    r"(?P<sum>[0-9a-f]{64})  (?P<group>[\w.-]+)/(?P<name>.+)-(?P<version>\d[\w.]*)(?:-[A-Za-z][\w.-]*)?\.jar"
)


def sbom() -> str:
    """Return the document, CycloneDX 1.6 in JSON.

    Raises:
        ValueError: a line of the lists cannot be parsed.
    """
    components = [*_packages((_ROOT / "requirements.txt").read_text()), *_jars(_JARS.read_text())]
    content = {
        "metadata": {"component": {"type": "application", "name": "headgate", "version": version("headgate")}},
        "components": components,
    }
    serial = uuid5(NAMESPACE_URL, json.dumps(content, sort_keys=True))
    document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return json.dumps({**document, **content}, indent=1) + "\n"


def _packages(requirements: str) -> Iterator[dict[str, Any]]:
    for entry in re.split(r"\n(?=[A-Za-z0-9])", requirements.strip()):
        found = _PACKAGE.match(entry)
        if found is None:
            raise ValueError(f"requirements.txt: {entry.splitlines()[0]} is not pinned")
        yield {
            "type": "library",
            "bom-ref": f"pkg:pypi/{found['name'].lower()}@{found['version']}",
            "name": found["name"],
            "version": found["version"],
            "purl": f"pkg:pypi/{found['name'].lower()}@{found['version']}",
            # A package has several files, by platform; pip accepts only these.
            "properties": [{"name": "headgate:sha256", "value": each} for each in sorted(_HASH.findall(entry))],
        }


def _jars(sums: str) -> Iterator[dict[str, Any]]:
    for line in filter(None, sums.splitlines()):
        found = _JAR.fullmatch(line)
        if found is None:
            raise ValueError(f"jars.sha256: {line} is not understood")
        file = line.partition("  ")[2]
        yield {
            "type": "library",
            "bom-ref": f"jar:{file}",
            "name": found["name"],
            "version": found["version"],
            "hashes": [{"alg": "SHA-256", "content": found["sum"]}],
            "properties": [{"name": "headgate:file", "value": file}],
        }
