"""The spark-submit command line that runs the query."""

import shlex
import sys
from pathlib import Path

from deploy.java.jars import fetch_jars
from deploy.settings.application import Settings
from policies.errors import UserError
from streaming.conf import PYTHON, launch_properties

_PROGRAM = Path(__file__).parents[1] / "submit" / "headgate_submit.py"


def submit_line(settings: Settings, file: Path | None) -> str:
    """A command for a shell, one option a line.

    Args:
        settings: those of the file.
        file: the settings file, which the driver reads.

    Raises:
        UserError: there is no file, or the jars cannot be had.
    """
    if file is None:
        raise UserError("--print-submit needs --settings: the driver reads the file again")
    (jars,) = fetch_jars(["spark"], settings.jars_dir, lambda _line: None)  # only the command is printed
    options = launch_properties(settings.stream, jars, settings.made_data_dir() / "spark.log")
    # A driver's own Python has Headgate; that of executors is `spark.pyspark.python`.
    options = {"spark.jars": ",".join(map(str, jars)), "spark.pyspark.driver.python": sys.executable, **options}
    options.setdefault(PYTHON, sys.executable)
    properties = [f"--conf {shlex.quote(f'{name}={value}')}" for name, value in sorted(options.items())]
    program = shlex.join([str(_PROGRAM), "decide", "--settings", str(file.absolute())])
    return " \\\n  ".join(["spark-submit", *properties, program])
