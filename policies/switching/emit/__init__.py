"""Publishes what was judged: orders in words, numbered and dated decisions, and the record of the switch's state."""
