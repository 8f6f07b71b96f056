"""The settings of the executor: what does not fit is refused where it stands, and no secret is quote_name."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.bookkeeper.settings import CopyReplication
from connectors.switching.registration import SwitchExecution
from policies.units import UserError


def test_an_empty_block_allows_it_with_copies_as_in_the_source() -> None:
    settings = SwitchExecution()
    assert (settings.replication, settings.password()) == (None, b"")


@pytest.mark.parametrize("sizes", [(3, 3, 3), (3, 2, 1), (1, 1, 1)])
def test_sizes_that_fit_each_other_are_those_of_the_copies(sizes: tuple[int, int, int]) -> None:
    ensemble, write, ack = sizes
    block = CopyReplication(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)
    assert tuple(block.model_dump().values()) == sizes


@pytest.mark.parametrize("sizes", [(2, 3, 1), (3, 1, 2), (0, 0, 0)])
def test_sizes_that_do_not_fit_are_refused(sizes: tuple[int, int, int]) -> None:
    ensemble, write, ack = sizes
    with pytest.raises(ValidationError):
        CopyReplication(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)


def test_the_ledgers_password_comes_from_the_settings_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    assert SwitchExecution(ledger_password_file=file).password() == b"hunter2"
    assert SwitchExecution.model_validate({"ledger_password": "hunter2"}).password() == b"hunter2"


@pytest.mark.parametrize(
    "block",
    [
        {"ledger_password": "hunter2", "ledger_password_file": "/dev/null"},
        {"ledger_password": ["hunter2"]},
        {"ledger_pasword": "hunter2"},
    ],
    ids=["two of them", "no text", "mistyped"],
)
def test_mistakes_quote_no_secret(block: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        SwitchExecution.model_validate(block)
    assert "hunter2" not in str(raised.value)


def test_a_password_file_that_is_gone_later_is_a_mistake_to_mend(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2")
    settings = SwitchExecution(ledger_password_file=file)
    file.unlink()
    with pytest.raises(UserError, match="ledger_password_file"):
        settings.password()
