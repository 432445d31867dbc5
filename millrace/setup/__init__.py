"""Everything a fresh machine lacks before ``pulumi up``: engines, image, distributions."""
