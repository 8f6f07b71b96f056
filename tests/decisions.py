"""A decision of any kind, for the tests of its consumers: made at noon, valid for five minutes, otherwise blank."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin

from policies.decisions import Decision, Mode, deterministic_id

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
Decided = TypeVar("Decided", bound=Decision)

_USUAL: dict[str, Any] = {
    "sequence": 1,
    "explanation": "as the test wants it",
    "decided_at": NOON,
    "mode": Mode.ACTIVE,
    "settings_hash": "x",
    "valid_until": NOON + timedelta(minutes=5),
}


def decided(kind: type[Decided], **fields: Any) -> Decided:
    """A decision with these fields. Other required fields are None if they may be, else false, 0 or empty."""
    required = {name: field.annotation for name, field in kind.model_fields.items() if field.is_required()}
    given = {name: _USUAL.get(name, _blank(annotation)) for name, annotation in required.items()} | fields
    return kind.model_validate({**given, "decision_id": given["decision_id"] or deterministic_id(*given.values())})


def _blank(annotation: Any) -> Any:
    if NoneType in get_args(annotation):
        return None
    if (origin := get_origin(annotation) or annotation) in (tuple, bool, int, float, str):
        return origin()
    return {} if origin in (dict, Mapping) else None
