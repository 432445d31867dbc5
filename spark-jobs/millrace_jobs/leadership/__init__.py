"""Which driver leads: places in line, the lease, fencing epochs, and what ends with a driver."""
