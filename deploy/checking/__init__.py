"""What is said of a settings file: mistakes, doubts, and what is in force."""
