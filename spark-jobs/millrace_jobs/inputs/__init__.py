"""What a query reads: topics, offsets, and whether a checkpoint goes on where its job stopped."""
