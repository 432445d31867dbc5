"""What operators ask of a job, answered by the driver that leads beside its streams."""
