"""Sources: the port (`reader`) and its kinds' readers. `kinds.sources` says which is whose."""
