"""The commands `headgate switch …`: `cli` names them, `commands` and `dialogue` talk to the loop, others show."""
