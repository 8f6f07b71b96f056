"""The switching policy: moves the brokers of a cluster to another BookKeeper cluster at run time, safely.

Beside the files that all policies have, `transition` writes what the judge decides, and `precheck` judges a snapshot of
two clusters on its own. `ledgers` has the terms of BookKeeper and Pulsar.
"""

NAME = "switching"
