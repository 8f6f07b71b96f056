"""The commands of policies: `headgate switch …`, `placement` and all others that a policy's registration names."""
