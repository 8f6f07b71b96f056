"""The sections of Headgate's own policies on the status page; `PolicyConnectors.detail` names each."""
