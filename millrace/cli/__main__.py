"""`python -m millrace.cli`: the same as `millrace`."""

from millrace.cli import main

main()
