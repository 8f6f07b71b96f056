"""The rows of the switch's table: pure verdicts on facts, given as changes. Nothing is written here.

Where to look: what people ask for in `commands`, what is read of the world in `observed` and `inventory`, what
executors say in `results`, how a switch goes on by itself in `stages`; the questions that all of them ask in `guards`,
what must hold whatever they let through in `invariants`, and what they can conclude in `changes`.
"""
