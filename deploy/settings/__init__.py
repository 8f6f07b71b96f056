"""The settings of the whole application: the model and the file."""
