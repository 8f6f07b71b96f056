"""Everything that talks to another system: collectors that observe, and what carries decisions out.

Connectors know the vocabulary of `policies` and the client libraries, but no Spark, and not how they are deployed.
"""
