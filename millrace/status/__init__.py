"""The cluster's state at a glance: asked of everybody at once, judged here; no answer isn't "down".

collect.py   who is asked, in one round with one deadline
asking.py    that round: what isn't answered by then is a silence
figures.py   what Prometheus' figures say that nobody else need be asked
ring.py      Cassandra's nodes as they see each other
snapshot.py  what was answered, and what came instead
verdict.py   from a snapshot to a state; pure
render.py    the state as a person reads it
watch.py     the status again and again
health.py    what deployments and drills wait for
"""
