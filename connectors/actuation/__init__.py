"""What all actuators share: following decisions, fencing, retrying until done, and reporting each outcome once.

An `Actuator` follows the loop's topics and hands each cluster's decisions to a `Worker` on its own thread. Its
`DecisionQueue` does the fencing. A `DecisionWorker` keeps a `Backlog` of open work. No policy is known here.
"""
