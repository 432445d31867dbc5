"""What a driver does that stands by: it keeps itself warm with all jobs until it leads."""
