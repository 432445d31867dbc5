"""What an event costs as keys, partitions, state and jobs grow."""
