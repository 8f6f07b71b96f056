"""What the Java side answers, and what becomes of it: every status, every phase, every code."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from connectors.bookkeeper.copier import LedgerCluster
from connectors.bookkeeper.copy_journal import PROVENANCE, CopyRecord
from connectors.bookkeeper.copy_results import (
    POLICY_OUTCOMES,
    CopyOutcome,
    JavaResult,
    LedgerFacts,
    copy_result,
    outcome_of_failure,
)
from policies.switching.ledgers import LedgerState
from policies.switching.readings import LedgerOutcome
from tests.cases import for_each

_OUR_MARK = {PROVENANCE: "c291cmNlL3Rva2Vu"}
_DIGEST = "sha256:01"
RECORD = CopyRecord(7, "source-instance", "target-instance", "token")


def facts(**changes: object) -> LedgerFacts:
    made = LedgerFacts(
        ledger_id=7,
        state=LedgerState.CLOSED,
        last_entry_id=1,
        length_bytes=10,
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=1,
        created_ms=1_000,
        custom_metadata={"application": "cHVsc2Fy"},
        entries_digest=_DIGEST,
    )
    return msgspec.structs.replace(made, **changes)


SOURCE = facts()
COPY = facts(custom_metadata={**SOURCE.custom_metadata, **_OUR_MARK}, created_ms=2_000)


@for_each(
    ("status", "outcome"),
    [
        ("copied", CopyOutcome.COPIED),
        ("own_closed", CopyOutcome.BUILT),
        ("own_partial", CopyOutcome.OWN_PARTIAL),
        ("foreign", CopyOutcome.FOREIGN_CONFLICT),
        ("source_open", CopyOutcome.SOURCE_OPEN),
        ("cancelled", CopyOutcome.FAILED),
        ("never heard of", CopyOutcome.FAILED),
    ],
)
def test_each_status_of_equal_ledgers_has_its_outcome(status: str, outcome: CopyOutcome) -> None:
    assert copy_result(RECORD, JavaResult(status=status, source=SOURCE, target=COPY)).outcome is outcome


@for_each(
    "target",
    [
        facts(length_bytes=11),
        facts(last_entry_id=2),
        facts(entries_digest="sha256:02"),
        facts(entries_digest=None),
        facts(state=LedgerState.OPEN),
        facts(custom_metadata={}),
        facts(custom_metadata={"application": "eA=="}),
        None,
    ],
    ids=["length", "last entry", "digest", "no digest", "open", "no metadata", "other metadata", "unknown"],
)
@for_each(("status", "outcome"), [("copied", CopyOutcome.COPY_DIFFERS), ("own_closed", CopyOutcome.OWN_PARTIAL)])
def test_a_copy_that_is_not_wholly_equal_is_no_copy(
    target: LedgerFacts | None, status: str, outcome: CopyOutcome
) -> None:
    assert copy_result(RECORD, JavaResult(status=status, source=SOURCE, target=target)).outcome is outcome


@pytest.mark.parametrize(
    ("found", "target_id", "outcome"),
    [
        (9, 9, CopyOutcome.COPIED),
        (7, None, CopyOutcome.COPIED),
        (9, None, CopyOutcome.COPY_DIFFERS),
        (7, 9, CopyOutcome.COPY_DIFFERS),
    ],
)
def test_a_copy_has_the_id_that_was_journalled_for_it(found: int, target_id: int | None, outcome: CopyOutcome) -> None:
    answer = JavaResult(status="copied", source=SOURCE, target=msgspec.structs.replace(COPY, ledger_id=found))
    result = copy_result(replace(RECORD, target_id=target_id), answer)
    assert result.outcome is outcome
    assert result.target is not None
    assert (result.ledger_id, result.target.ledger_id) == (7, found)


def test_two_unread_digests_prove_nothing() -> None:
    answer = JavaResult(status="copied", source=facts(entries_digest=None), target=facts(entries_digest=None))
    assert copy_result(RECORD, answer).outcome is CopyOutcome.COPY_DIFFERS


@for_each(
    ("phase", "code", "outcome"),
    [
        ("source-connect", None, CopyOutcome.FAILED),
        ("source-connect", -9, CopyOutcome.FAILED),
        ("source-metadata", -25, CopyOutcome.SOURCE_UNREADABLE),
        ("source-metadata", -7, CopyOutcome.SOURCE_UNREADABLE),
        ("source-metadata", -9, CopyOutcome.FAILED),
        ("source-metadata", -23, CopyOutcome.FAILED),
        ("source-metadata", -107, CopyOutcome.SOURCE_UNREADABLE),
        ("source-read", -25, CopyOutcome.SOURCE_UNREADABLE),
        ("source-read", -9, CopyOutcome.FAILED),
        ("source-read", -105, CopyOutcome.FAILED),
        ("source-read", -8, CopyOutcome.SOURCE_UNREADABLE),
        ("source-read", -13, CopyOutcome.SOURCE_UNREADABLE),
        ("source-read", -23, CopyOutcome.SOURCE_UNREADABLE),
        ("source-read", 0, CopyOutcome.SOURCE_UNREADABLE),
        ("target-connect", None, CopyOutcome.FAILED),
        ("target-write", -6, CopyOutcome.FAILED),
        ("target-verify", -25, CopyOutcome.FAILED),
        ("copier", None, CopyOutcome.FAILED),
        ("", -9, CopyOutcome.FAILED),
    ],
)
def test_each_failure_has_its_outcome(phase: str, code: int | None, outcome: CopyOutcome) -> None:
    assert outcome_of_failure(phase, code) is outcome
    assert copy_result(RECORD, JavaResult(status="failed", phase=phase, code=code)).outcome is outcome


def test_the_policy_is_told_something_of_every_outcome() -> None:
    assert set(POLICY_OUTCOMES) == set(CopyOutcome)


@for_each("outcome", [o for o in CopyOutcome if o not in (CopyOutcome.COPIED, CopyOutcome.COPY_DIFFERS)])
def test_only_what_was_written_to_its_end_is_told_as_copied(outcome: CopyOutcome) -> None:
    assert POLICY_OUTCOMES[outcome] is not LedgerOutcome.COPIED


def test_a_ledger_is_told_without_our_mark_and_with_its_metadata_in_order() -> None:
    custom = {"z": "eg==", **_OUR_MARK, "a": "YQ=="}
    assert facts(custom_metadata=custom).ledger().custom_metadata == (("a", "YQ=="), ("z", "eg=="))


def test_an_answer_of_java_is_understood() -> None:
    text = (
        '{"source":{"ledger_id":4294967296,"state":"in_recovery","last_entry_id":-1,"length_bytes":0,"ensemble_size":1,'
        '"write_quorum":1,"ack_quorum":1,"created_ms":null,"custom_metadata":{}},"status":"source_open"}'
    )
    source = copy_result(RECORD, msgspec.json.decode(text, type=JavaResult)).source
    assert source is not None
    assert (source.ledger_id, source.state, source.created_ms) == (2**32, LedgerState.IN_RECOVERY, None)


def test_the_mark_of_a_copy_names_its_source_and_its_token() -> None:
    assert RECORD.identity() == {"provenance": "source-instance/token", "target_id": 7}
    assert replace(RECORD, target_id=9).identity() == {"provenance": "source-instance/token", "target_id": 9}


def test_the_clients_own_time_outs_end_before_ours_and_passwords_are_not_shown() -> None:
    cluster = LedgerCluster("i", "zk+hierarchical://zk/ledgers", password=b"secret")
    properties: Any = cluster.for_java(30.0)["properties"]
    assert int(properties["readEntryTimeoutSec"]) < 30
    assert int(properties["zkTimeout"]) < 30_000
    assert "secret" not in repr(cluster)
