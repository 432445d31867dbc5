"""What every room may use and that knows none of them."""
