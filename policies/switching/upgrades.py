"""Upgrades of stored states, which arrive decoded to lists, numbers and strings."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from policies.switching.state import LedgerTask

_SWITCH, _JOURNAL, _JOURNAL_BLOCKS = 11, 12, 22
_TASKS, _TASK_BLOCKS = 13, 22
_INTENTS = msgspec.msgpack.Decoder(list[list[Any]])
_PLAN = msgspec.msgpack.Decoder(list[LedgerTask])


def drop_journal(plain: list[Any]) -> list[Any]:
    """From version 1, whose policy kept a journal of copies: now each ledger of the plan has whether it was copied."""
    blocks = plain[_JOURNAL_BLOCKS] if len(plain) > _JOURNAL_BLOCKS else []
    intents = [*plain[_JOURNAL], *(intent for block in blocks for intent in _INTENTS.decode(block[2]))]
    copied = {(intent[0], bool(intent[4:] and intent[4])) for intent in intents}
    switch = plain[_SWITCH]
    if switch is not None:
        tasks = msgspec.convert(switch[_TASKS], list[LedgerTask])
        switch[_TASKS] = msgspec.to_builtins(list(_mark(tasks, copied)))
        for block in switch[_TASK_BLOCKS] if len(switch) > _TASK_BLOCKS else []:
            block[2] = msgspec.msgpack.encode(list(_mark(_PLAN.decode(block[2]), copied)))
    return [value for place, value in enumerate(plain) if place not in (_JOURNAL, _JOURNAL_BLOCKS)]


def _mark(tasks: Iterable[LedgerTask], copied: set[tuple[int, bool]]) -> Iterator[LedgerTask]:
    return (replace(task, copied=(task.ledger_id, task.remap) in copied) for task in tasks)
