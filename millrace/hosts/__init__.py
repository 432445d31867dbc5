"""Hosts as an operator and a drill handle them: who leads now, a command there, power and network.

roles.py      which host has a role now, asked of the service itself
power.py      kill, start, freeze, thaw, partition and rejoin, by the environment's provider
docker.py     … for hosts that are containers
commands.py   `millrace who | hosts | on | host | await`
"""
