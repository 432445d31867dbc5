"""What an operator reads, and hands on, when something is wrong.

logs.py      `millrace logs`: what all hosts logged, in the order of time
bundle.py    `millrace support-bundle`: all that can be said of the cluster, in one file
newest.py    as much of a log as there is room for
redact.py    what must not leave this machine
settings.py  what a bundle takes along, by configs/support.yaml
"""
