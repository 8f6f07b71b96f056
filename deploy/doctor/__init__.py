"""`headgate doctor`: everything the settings name, asked once, and changed by nothing."""
