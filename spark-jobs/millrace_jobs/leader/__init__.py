"""What the driver that leads does: it starts the jobs, keeps them running, and drains them."""
