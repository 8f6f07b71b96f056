"""Divides work among identical processes with Kafka's consumer groups, on topics that hold no records.

A watched cluster always belongs to the same share (`policies.shares`), a share is a partition, and Kafka assigns each
partition to one member of a group (`membership`). Until when a process holds its shares, it knows by its own clock
(`lease`).
"""
