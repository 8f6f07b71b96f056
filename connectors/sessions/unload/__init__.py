"""The unload actuator: unloads bundles, or has them owned again, as the sessions policy decides."""
