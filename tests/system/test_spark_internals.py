"""With `stream.spark_internals: off` the loop decides the same, byte for byte, from the same checkpoint."""

import uuid
from functools import partial
from pathlib import Path

import pytest

from deploy.settings.file import load_settings
from policies.registry import decided_topics
from tests.system.loop import Headgate, Topic, await_ready, make_topics, produce, write_settings
from tests.system.undisturbed import EVERY_PLAN, decided_alone, observed, read_all
from tests.system.waiting import eventually


def has_more(decided: Topic, count: int) -> bool:
    return len(decided.data()) > count


@pytest.mark.long  # varies `test_a_cluster_whose_executor_is_killed`
def test_a_run_with_and_without_spark_internals_decides_byte_for_byte_as_one_without_spark(
    tmp_path: Path, loop_kafka: str, free_port: int
) -> None:
    prefix = f"t{uuid.uuid4().hex[:8]}"
    limits = {"soft": {"available_bytes_below": "5GB"}, "hard": {"available_bytes_below": "1GB"}, "heartbeat": "3s"}
    records = observed()
    middle = len(records) // 2
    with Topic(loop_kafka, f"{prefix}.decided.throttle") as decided:
        for internals, half in (("off", records[:middle]), ("auto", records[middle:])):
            file = write_settings(
                tmp_path / "headgate.yaml",
                kafka={"bootstrap_servers": loop_kafka},
                topics={"prefix": prefix},
                data_dir=str(tmp_path / "data"),
                http={"port": free_port},
                policies={"throttle": limits},
                stream={"spark_internals": internals, "spark": EVERY_PLAN},
            )
            if internals == "off":
                make_topics(file)
            with Headgate(["decide", "-s", str(file)], tmp_path / f"{internals}.log") as query:
                await_ready(query, free_port)
                for topic, cluster, value in half:
                    produce(loop_kafka, f"{prefix}.{topic}", (cluster, value))
                known = len(decided.data())
                eventually("repeated decisions, which timers make", partial(has_more, decided, known + 2))
                assert query.stop() == 0, query.output()
    live = read_all(loop_kafka, [f"{prefix}.{topic}" for topic in decided_topics()])
    written = {line["payload"].decode() for line in live}
    assert len(written) > 20
    checkpoint, host = tmp_path / "data" / "checkpoint", load_settings(file).policy_host()
    assert sorted(decided_alone(checkpoint, loop_kafka, prefix, host)) == sorted(written)
