"""The processes of the loop: which components run in each, and how they start and stop."""
