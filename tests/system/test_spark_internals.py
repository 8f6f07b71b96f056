"""With `stream.spark_internals: off` the loop decides the same, byte for byte, from the same checkpoint."""

import uuid
from functools import partial
from pathlib import Path

from policies.registry import decided_topics
from tests.system.loop import Headgate, Topic, await_ready, make_topics, produce, write_settings
from tests.system.test_replay_live import observed, read_all, replay
from tests.system.waiting import eventually


def has_more(decided: Topic, count: int) -> bool:
    return len(decided.data()) > count


def test_a_run_with_and_without_spark_internals_is_replayed_byte_for_byte(
    tmp_path: Path, loop_kafka: str, free_port: int
) -> None:
    """A replay of the run's batches has no Spark: so it is what both ways must equal."""
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
                stream={"spark_internals": internals},
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
    written = {str(line["payload"]) for line in live}
    assert len(written) > 20
    assert sorted(replay(file, "--from", "2020-01-01T00:00:00Z")) == sorted(written)
