"""A declared job's rows, counted again from the archive, and held to those that are stored."""
