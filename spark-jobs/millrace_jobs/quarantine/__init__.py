"""Records that a job fails by are found, and put aside."""
