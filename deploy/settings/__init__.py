"""The settings of the whole application: the model, the file, and the reload."""
