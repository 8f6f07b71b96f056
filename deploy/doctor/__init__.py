"""`headgate doctor`: connects to everything the settings name, checks it, and changes nothing."""
