"""What a declaration means, read off the plan that Spark makes of it; no query is started."""
