"""The settings of the executor: what does not fit is refused where it stands, and no secret is quoted."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.bookkeeper.settings import CopyReplication
from connectors.switching.registration import SwitchExecution


def test_an_empty_block_allows_it_with_copies_as_in_the_source() -> None:
    settings = SwitchExecution()
    assert (settings.replication, settings.password()) == (None, b"")


@pytest.mark.parametrize(
    ("sizes", "is_refused"),
    [((3, 3, 3), False), ((3, 2, 1), False), ((2, 3, 1), True), ((3, 1, 2), True), ((0, 0, 0), True)],
)
def test_sizes_of_copies_fit_each_other(sizes: tuple[int, int, int], is_refused: bool) -> None:
    block = dict(zip(("ensemble_size", "write_quorum", "ack_quorum"), sizes, strict=True))
    with pytest.raises(ValidationError) if is_refused else nullcontext():
        CopyReplication.model_validate(block)


def test_the_ledgers_password_comes_from_the_settings_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    assert SwitchExecution(ledger_password_file=file).password() == b"hunter2"
    assert SwitchExecution.model_validate({"ledger_password": "hunter2"}).password() == b"hunter2"


@pytest.mark.parametrize(
    "block",
    [{"ledger_password": "hunter2", "ledger_password_file": "/dev/null"}, {"ledger_pasword": "hunter2"}],
    ids=["two of them", "mistyped"],
)
def test_mistakes_quote_no_secret(block: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        SwitchExecution.model_validate(block)
    assert "hunter2" not in str(raised.value)
