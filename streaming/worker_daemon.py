"""Spark's daemon of Python workers, with all modules imported before it forks workers.

Spark's own daemon imports nothing, so each worker takes a second of processor time to import: at the start, and again
whenever one was idle for a minute, as those of a stand-by are.
"""

import gc

import pyspark.worker
from pyspark.daemon import manager

import streaming.operator

LOADED = (pyspark.worker, streaming.operator)


def main() -> None:
    """Fork workers until Spark ends."""
    gc.collect()
    gc.freeze()  # what is shared with the workers stays so: their collector does not write on it
    manager()


if __name__ == "__main__":
    main()
