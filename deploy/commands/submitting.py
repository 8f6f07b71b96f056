"""The spark-submit command line that runs the query."""

import shlex
import sys
from pathlib import Path

from deploy.java.jars import ensure_jars
from deploy.settings.application import Settings
from policies.units import UserError
from streaming.conf import PYTHON, launch_properties

_PROGRAM = Path(__file__).parents[1] / "submit" / "headgate_submit.py"


def submit_line(settings: Settings, file: Path | None) -> str:
    """Return a command for a shell, one option a line; the driver reads the settings file again, so one is needed."""
    if file is None:
        raise UserError("--print-submit needs --settings, because the driver reads the file again")
    jars = ensure_jars("spark", settings.jars_dir, lambda _line: None)  # print only the command
    options = launch_properties(settings.stream, jars, settings.create_data_dir() / "spark.log")
    # The driver uses this Python, which has Headgate; `spark.pyspark.python` names the executors' Python.
    options = {"spark.jars": ",".join(map(str, jars)), "spark.pyspark.driver.python": sys.executable, **options}
    options.setdefault(PYTHON, sys.executable)
    properties = [f"--conf {shlex.quote(f'{name}={value}')}" for name, value in sorted(options.items())]
    program = shlex.join([str(_PROGRAM), "decide", "--settings", str(file.absolute())])
    return " \\\n  ".join(["spark-submit", *properties, program])
