"""Divides work among identical processes with Kafka's consumer groups, on topics without records.

Each watched cluster always belongs to the same work partition (`policies.wire`), a partition of such a topic. Kafka
assigns each partition to one member of the group (`membership`). A process knows by its own clock until when it holds
its partitions (`lease`). Settings, topics and metrics call a work partition a share.
"""
