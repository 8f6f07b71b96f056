"""Spark: the session and its tuning, the one query, the operator that hosts any policy, and replay without Spark.

Nothing here knows what a policy decides; nothing here talks to another system but through Spark's Kafka connector.
"""
