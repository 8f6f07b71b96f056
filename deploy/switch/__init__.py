"""The commands `headgate switch …`: `cli` names them, `dialogue` and `commands` talk to the loop, others read or show."""
