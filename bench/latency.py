"""How long from an observation's append to the append of the decision of its batch, per event, none left out.

Every observation changes its cluster's factor (holds and min_change are 0), so each batch that holds one decides. Both
instants are Kafka's own (LogAppendTime), on one broker, so no two clocks are compared.

    python bench/latency.py --rates 1 100 1000 --seconds 60 --warmup 60
    python bench/latency.py --against HEAD~20 --turns 2
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.appended import Load, Throttled
from bench.quantiles import quantile
from bench.turns import Figures, run
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topic_admin import create_topics
from connectors.kafka.topics import TopicSettings
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, ensure_jars, spark_group
from policies.throttle import ThrottleSettings
from streaming.host import PolicyHost
from streaming.query import Wiring, start_query
from streaming.session import start_session
from streaming.settings import StreamSettings
from tests.eager import EAGER
from tests.system.waiting import eventually

PREFIX = "headgate"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rates", type=int, nargs="+", default=[1, 100, 1000], help="observations a second")
    parser.add_argument("--seconds", type=int, default=60, help="measured time for each rate")
    parser.add_argument("--warmup", type=int, default=60, help="seconds of the first rate that do not count")
    parser.add_argument("--trigger", help="trigger_interval; by default what the commit has")
    run(__doc__ or "", measure, parser)


def measure(given: argparse.Namespace) -> Figures:
    """Measure each rate in turn."""
    settings = StreamSettings.model_validate({"trigger_interval": given.trigger} if given.trigger else {})
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder, _broker(Path(folder)) as broker:
        throttled = Throttled(broker.bootstrap_servers, PREFIX)
        create_topics(KafkaConnection(bootstrap_servers=broker.bootstrap_servers), TopicSettings(prefix=PREFIX))
        _start(broker.bootstrap_servers, Path(folder), settings)
        throttled.produce(Load.build(given.rates[0]), 1)
        eventually("the first decision", lambda: throttled.ends()[throttled.decided])
        throttled.produce(Load.build(given.rates[0]), given.warmup)
        for rate in given.rates:
            marks = throttled.ends()
            throttled.produce(Load.build(rate), given.seconds)
            time.sleep(3)  # the last batch
            millis = eventually("all are decided on", partial(throttled.latencies, marks))
            for percent in (50, 99):
                figures[f"{rate}/s, p{percent}, ms"] = quantile(millis, percent)
            figures[f"{rate}/s, longest, ms"] = millis[-1]
    return figures


def _broker(folder: Path) -> EmbeddedKafka:
    return EmbeddedKafka(folder / "kafka", jars=ensure_jars("kafka", default_cache_dir()))


def _start(servers: str, folder: Path, settings: StreamSettings) -> None:
    host = PolicyHost({"throttle": ThrottleSettings.model_validate(EAGER)})
    spark = start_session(settings, ensure_jars(spark_group(), default_cache_dir()), folder / "spark.log")
    start_query(spark, Wiring({"bootstrap.servers": servers}, PREFIX, folder / "checkpoint"), host, settings)


if __name__ == "__main__":
    main()
