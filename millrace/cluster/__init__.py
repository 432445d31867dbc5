"""The one room that talks to a running cluster. Nobody else opens a connection to it.

access.py, ssh.py   hosts: how they are entered, commands there
services.py         what a service says of itself, at its own port
probe.py            what only a host knows of its services; runs there
logs.py             the logs of hosts, as log_reader.py, which runs there, hands them over
facts.py            what hosts are like, by host_facts.py, which runs there
kafka.py            brokers, topics, positions
zookeeper.py        the drivers that are registered, and orders to them
cassandra.py        tables and ring
books.py            the books of each stream
tables.py           lookup tables and their versions
redis.py            the Sentinels' master
hdfs.py, yarn.py    over their REST APIs, at whichever master is active
prometheus.py       the edge hosts' figures and alerts, now and earlier
collector.py        events in over HTTP
insight_api.py      the service's own REST API
job_gateway.py      the gateway's command on an edge host
"""
