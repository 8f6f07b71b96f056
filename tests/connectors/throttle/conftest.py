"""kafka-python's schemas are read by our package first, which knows that Python deprecates the way they are read."""

import connectors.kafka  # noqa: F401
