"""The commands `headgate switch …`, which `cli` declares.

`command_runner` sends commands to the loop through `loop_client`; `precheck` and `status` only read.
"""
