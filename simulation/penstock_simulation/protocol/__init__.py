"""The store's protocol under faults: seeded runs on the twin. `world.simulate` is the way in."""
