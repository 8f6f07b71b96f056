"""A standalone Spark cluster on this machine: a master and workers, as their own classes start them."""

import os
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pyspark

from tests.system.processes import command_line, descendants
from tests.system.waiting import eventually
from tests.system.zookeeper import free_port

_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"


class SparkCluster:
    """Runs while it is used in a with statement.

    Args:
        folder: for logs and what executors leave.
        workers: how many, of one core each.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._stack = ExitStack()
        self._started: list[subprocess.Popen[bytes]] = []
        self.master = f"spark://127.0.0.1:{free_port()}"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        port = self.master.rpartition(":")[2]
        self._start("master", f"{_DEPLOY}.master.Master", "--port", port)
        for number in range(self._workers):
            work = self._folder / f"worker-{number}"
            one_core = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            self._start(f"worker-{number}", f"{_DEPLOY}.worker.Worker", *one_core, self.master)
        eventually("all workers are registered", lambda: self._registered() == self._workers)
        return self

    def __exit__(self, *error: object) -> None:
        for process in reversed(self._started):
            process.kill()
            process.wait()
        for pid in self.executors():
            os.kill(pid, 9)
        self._stack.close()

    def executors(self) -> list[int]:
        """Pids of the executors that run for this cluster's applications."""
        mine = {pid for process in self._started for pid in descendants(process.pid)}
        return [pid for pid in sorted(mine) if b"CoarseGrainedExecutorBackend" in command_line(pid)]

    def has_run(self, application: str) -> bool:
        """Whether it had an application of this name."""
        return f"Registered app {application} with ID" in (self._folder / "master.log").read_text()

    def _registered(self) -> int:
        # One that the master does not answer in time asks again.
        return len(set(re.findall(r"Registering worker (\S+)", (self._folder / "master.log").read_text())))

    def _start(self, name: str, main: str, *arguments: str) -> None:
        log = self._stack.enter_context((self._folder / f"{name}.log").open("wb"))
        local = ("--host", "127.0.0.1", "--webui-port", "0")
        command = [str(_HOME / "bin/spark-class"), main, *local]
        java = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1"}
        environment = {**os.environ, **java, "SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
        environment.pop("PYTHONPATH", None)  # executors have the code that the driver sends them, and no other
        self._started.append(
            subprocess.Popen([*command, *arguments], stdout=log, stderr=subprocess.STDOUT, env=environment)
        )
