"""The implementation of the commands `headgate switch …`, which `cli` declares.

`command_runner` runs the commands that are sent to the loop, through `loop_client`; each `…_command` runs one that is
not sent; each `…_view` formats output.
"""
