"""The rows of the switch's transition table as pure verdicts on facts, returned as changes. Nothing is written here.

Where to look: commands of people in `commands`, observations of brokers and registry in `observed` and `inventory`,
executors' results in `results`, and automatic progress in `stages`. `guards` holds the conditions that all of them
check, `invariants` what must hold whatever the guards let through, `changes` the possible conclusions.
"""
