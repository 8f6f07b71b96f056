"""Spark: the session and its tuning, the query, the operator that hosts any policy, and replay without Spark.

Nothing here knows what a policy decides, and nothing talks to another system except through Spark's Kafka connector.
"""
