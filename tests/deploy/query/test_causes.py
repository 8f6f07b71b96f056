"""The last line of a process that gives up names the cause, whatever it was wrapped in."""

from py4j.protocol import Py4JError

from deploy.query.supervisor import cause_in_one_line
from tests.cases import for_each

_STAGE = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 0 in "
    "stage 7.0 failed 1 times, most recent failure: Lost task 0.0 in stage 7.0 (TID 9) (127.0.0.1 executor driver): "
)
_TRACE = "\n\tat org.apache.kafka.clients.producer.KafkaProducer.doSend(KafkaProducer.java:1)\n\nDriver stacktrace:"


@for_each(
    ("said", "cause"),
    [
        (
            f"{_STAGE}org.apache.kafka.common.errors.RecordTooLargeException: The message is 26733012 bytes.{_TRACE}",
            "RecordTooLargeException: The message is 26733012 bytes.",
        ),
        (
            "An error\nCaused by: org.apache.spark.SparkException: Task failed\n\tat x\n"
            "Caused by: java.io.FileNotFoundException: /c/offsets/0 (gone)\n\tat y(Z.java:1)",
            "FileNotFoundException: /c/offsets/0 (gone)",
        ),
        (
            f"{_STAGE}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            '  File "host.py", line 1, in recall\n'
            "streaming.host.UnreadableStateError: state format 9 is newer than 1\n",
            "UnreadableStateError: state format 9 is newer than 1",
        ),
        ("[STREAM_FAILED] it ended SQLSTATE: XXKST", "[STREAM_FAILED] it ended"),
        ("the query ended by itself", "the query ended by itself"),
        ("", "RuntimeError"),
        ("x" * 1000, "x" * 300 + " …"),
    ],
)
def test_the_root_is_told_in_one_line(said: str, cause: str) -> None:
    assert cause_in_one_line(RuntimeError(said)) == cause


def test_an_error_whose_jvm_has_died_is_told_by_its_type() -> None:
    class JvmAskingError(Py4JError):  # type: ignore[misc]
        def __str__(self) -> str:
            raise ConnectionRefusedError

    assert cause_in_one_line(JvmAskingError()) == "JvmAskingError"
