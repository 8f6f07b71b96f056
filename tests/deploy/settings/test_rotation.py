"""Each setting that names a file of a secret or certificate has a test that changes the file while it is in use."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from deploy.settings.application import Settings

ROOT = Path(__file__).parents[3]
RENEWED = ("tests/deploy/processes/test_running.py", "a_changed_certificate_starts_anew")
OF = "tests/connectors"
CHANGED = {
    "HttpAccess.token_file": (f"{OF}/http/test_access.py", "a_token_comes_from_the_settings_or_from_a_file"),
    "HttpAccess.cert_file": RENEWED,
    "HttpAccess.key_file": RENEWED,
    "Tls.ca_file": RENEWED,
    "Tls.cert_file": RENEWED,
    "Tls.key_file": RENEWED,
    "Tls.key_password_file": RENEWED,
    "Sasl.password_file": RENEWED,
    "Sasl.client_secret_file": RENEWED,
    "AlertmanagerSettings.token_file": (f"{OF}/alertmanager/test_notifier.py", "a_changed_token_file_counts"),
    "ZooKeeperConnection.password_file": ("tests/system/test_bookie_collector.py", "what_an_acl_hides_is_unauthorized"),
    "PulsarAdmin.token_file": (f"{OF}/pulsar/test_connection.py", "a_changed_token_file_counts_at_once"),
    "SwitchExecution.ledger_password_file": (f"{OF}/switching/test_ledger_copiers.py", "a_password_that_is_changed"),
}
"""By block and field: the test file, and a part of the test's name."""


def models(kind: Any, seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    """Every block of settings, once."""
    if get_origin(kind) in (Union, UnionType) or get_args(kind):
        for part in get_args(kind):
            yield from models(part, seen)
    elif isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in seen:
        seen.add(kind)
        yield kind
        for field in kind.model_fields.values():
            yield from models(field.annotation, seen)


def test_every_file_of_the_settings_is_changed_in_a_test() -> None:
    found = {
        f"{model.__name__}.{name}"
        for model in models(Settings, set())
        for name, field in model.model_fields.items()
        if name.endswith(("_file", "_keys")) and "Path" in str(field.annotation)
    }
    assert found == CHANGED.keys()


def test_those_tests_exist() -> None:
    tests = {place: (ROOT / place).read_text(encoding="utf-8") for place, _ in CHANGED.values()}
    missing = [(p, n) for p, n in CHANGED.values() if not re.search(rf"^def test_\w*{n}", tests[p], re.MULTILINE)]
    assert missing == []
