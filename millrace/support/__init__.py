"""What an operator reads, and hands on, when something is wrong: all hosts' logs as one."""
