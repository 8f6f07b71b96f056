"""What the status page says of each of Headgate's own policies, as `PolicyConnectors.detail` names it."""
