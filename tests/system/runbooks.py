"""An operator who pastes the commands of an alert's runbook into a shell that has the tools of Kafka and Pulsar.

CONTRIBUTING.md lists which test follows which commands.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from deploy.java.jvm import find_java
from policies.registry import alert_kind

_COMMAND = re.compile(r"^ *((?:kafka-|pulsar-admin |bundle=|curl )(?:.*\\\n)*.*)$", re.MULTILINE)


class Operator:
    """Runs commands with tools that are called as in their distributions.

    Args:
        folder: for the tools.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def install(self, name: str, jars: Sequence[Path], main_class: str, *first: str) -> None:
        """Make a tool of a class of these jars, which gets the arguments `first` before all others."""
        tool = self._folder / name
        words = (str(find_java()), "-cp", ":".join(map(str, jars)), main_class, *first)
        tool.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        tool.chmod(0o755)

    def install_pulsar_admin(self, jars: Sequence[Path], admin_url: str) -> None:
        """Make `pulsar-admin`, with the `client.conf` of a cluster."""
        config = self._folder / "client.conf"
        config.write_text(f"webServiceUrl={admin_url}\n")
        self.install("pulsar-admin", jars, "org.apache.pulsar.admin.cli.PulsarAdminTool", str(config))

    def run(self, lines: Iterable[str], values: Mapping[str, str] | None = None) -> str:
        """Run commands in one shell, up to the first that fails, which fails the test; returns their output.

        Args:
            lines: as they are printed.
            values: what the operator writes in place of words in them, such as those in capitals.
        """
        script = "\n".join(lines)
        for word, value in (values or {}).items():
            assert word in script, f"{word} is not in {script}"
            script = script.replace(word, value)
        path = {**os.environ, "PATH": f"{self._folder}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", "-ec", script], env=path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout


def find_commands(explained: str, policy: str, alert: str) -> list[str]:
    """Return the commands for other tools than `headgate` that `headgate explain` prints for an alert."""
    runbook = explained.partition(f"{policy}: {alert} ")[2].partition("\nnumbers")[0]
    assert runbook, explained
    return _COMMAND.findall(runbook)


def commands_of(policy: str, alert: str, **values: str) -> tuple[str, ...]:
    """Return the lines of an alert that does not fire here, for these values."""
    kind = alert_kind(policy, alert)
    assert kind is not None, alert
    return kind.lines(values)
