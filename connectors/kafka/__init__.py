"""Kafka: connections, the loop's topics, publishing to them, and reading a cluster's log dirs."""

import warnings

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way Python 3.11 deprecates; nothing of it concerns our users.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.metadata  # noqa: F401
