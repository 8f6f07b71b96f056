"""Kafka: how to connect, the topics of the loop, publishing to them, and watching a cluster's log dirs."""

import warnings

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way Python 3.11 deprecates; nothing of it concerns our users.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.metadata  # noqa: F401
