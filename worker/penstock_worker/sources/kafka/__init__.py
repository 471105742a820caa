"""Kafka's topics as a source: `reader` keeps the port, `client` has the library's consumer, `partition` what
came of one, `topic_ids` whether a topic is still the one that was read, `formats` what records mean."""
