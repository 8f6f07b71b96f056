"""Who of several processes alike does what: by Kafka's own consumer groups, on topics that hold nothing.

A watched cluster belongs to a share for ever (`policies.shares`), a share is a partition, and Kafka assigns each
partition to one member of a group (`membership`). What a process holds, and until when, it knows by its own clock
(`lease`).
"""
