"""The commands `headgate switch …`, which `cli` declares.

`command_runner` sends commands to the loop through `loop_client`. Each `…_command` runs a command that is not sent.
Each `…_view` formats output.
"""
