"""When the query looks for records, and which ones it reads."""

from unittest.mock import MagicMock, call

import pytest

from streaming.query import Wiring, _source, set_polling_interval
from streaming.settings import StreamSettings

POLLING_DELAY = "spark.sql.streaming.pollingDelay"


@pytest.mark.parametrize(
    ("interval_ms", "apart_ms", "waits"),
    [
        pytest.param(20, 0, "20ms", id="shorter than any batch: batches follow each other, and it waits for records"),
        pytest.param(59, 0, "59ms", id="a little shorter"),
        pytest.param(0, 0, "10ms", id="never without a wait"),
        pytest.param(60, 60, None, id="as long as a short batch: they begin at its multiples"),
        pytest.param(10_000, 10_000, None, id="much longer"),
    ],
)
def test_batches_wait_for_records_or_for_the_interval_and_not_for_both(
    interval_ms: int, apart_ms: int, waits: str | None
) -> None:
    session = MagicMock()
    session.sparkContext.getConf().contains.return_value = False
    assert set_polling_interval(session, interval_ms) == apart_ms
    assert session.conf.set.call_args_list == ([] if waits is None else [call(POLLING_DELAY, waits)])


def test_a_record_of_an_aborted_transaction_is_not_read() -> None:
    reader = MagicMock()
    for method in (reader.format, reader.options, reader.option):
        method.return_value = reader
    _source(MagicMock(readStream=reader), Wiring({}, "headgate", "nowhere"), StreamSettings())
    assert call("kafka.isolation.level", "read_committed") in reader.option.call_args_list
