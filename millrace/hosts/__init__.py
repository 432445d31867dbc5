"""Hosts as an operator and a drill handle them: who leads now, a command there, power and network.

roles.py      which host has a role now, asked of the service itself
power.py      kill, start, freeze, thaw, partition and rejoin, as the provider can
commands.py   `millrace who | hosts | on | host | await`
"""
