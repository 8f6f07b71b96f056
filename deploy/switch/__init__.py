"""The commands `headgate switch …`, which `cli` declares.

`loop_commands` sends them to the loop; `precheck` and `status` only read.
"""
