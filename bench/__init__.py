"""The bench: what the service costs, how fresh its results are, and engines beside each other."""
