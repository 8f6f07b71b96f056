"""The parts that all actuators share: follow decisions, fence them, retry until done, report each outcome once.

An `Actuator` follows the loop's topics and passes each cluster's decisions to a `Worker` on a thread of its own, which
fences them. An `OrderWorker` carries out each decision once; a `LevelWorker` keeps levels as decided. This package
knows no policy.
"""
