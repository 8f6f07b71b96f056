"""Everything that talks to another system: collectors, which observe, and actuators, which carry decisions out.

Connectors know the vocabulary of `policies` and the client libraries, but neither Spark nor how they are deployed.
"""
