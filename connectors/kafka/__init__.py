"""Kafka: connections, the loop's topics, publishing and reading records, log dirs and quotas of a watched cluster."""

import warnings

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 deprecates; users can do nothing about it.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.metadata  # noqa: F401
