"""What all actuators have in common: following decisions, the fence, trying until it is done, and saying so once.

An `Actuator` follows the loop's topics and hands each cluster's decisions to a `Worker` on a thread of its own. Its
`DecisionQueue` is the fence. A `DecisionWorker` keeps a `Backlog` of what is still to be done. No policy is known here.
"""
