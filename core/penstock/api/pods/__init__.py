"""What a Topology says of its pods beside the code: their settings, and what is wrong with them."""
