"""What the end-to-end tests know of the cluster: commands, watches, objects, faults. They themselves say only
what should be so."""
