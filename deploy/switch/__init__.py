"""The commands `headgate switch …`, which `cli` names.

`command_runner` runs those that are sent to the loop through `loop_client`; each `…_command` runs one that is not; each
`…_view` is what a person sees.
"""
