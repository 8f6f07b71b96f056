"""Verdicts of the throttle policy: `volumes` on each volume, `brokers` on each broker, `cluster` on the whole.

All of them are pure: nothing is published here, and nothing is stored but the verdicts that `brokers` takes over from
the step before.
"""
