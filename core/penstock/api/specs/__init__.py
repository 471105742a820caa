"""What manifests say, part by part: the models that `topology` and `latency_sla` are made of."""
