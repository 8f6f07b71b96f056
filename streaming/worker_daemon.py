"""Spark's daemon of Python workers, with all that they import loaded before it forks them.

Spark's own imports nothing, so each worker does, for a second of processor time: at the start, and again whenever one
had been idle for a minute, as those of a stand-by are.
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
