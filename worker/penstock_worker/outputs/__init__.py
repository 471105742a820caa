"""What a commit puts out: rows on their way to shards and sinks, packed into entries."""
