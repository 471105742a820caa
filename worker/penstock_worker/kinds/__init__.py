"""Which kind of source has which reader, and which kind of sink which writer: the worker's registries."""
