"""The gateway keeps each deployed application running on YARN: exactly one, of the right version.

One runs on each edge host and the one that holds ZooKeeper's lock acts. It imports nothing of Spark
and nothing of the jobs: what the two must agree on is in millrace_shared. It is packaged apart from
them, so neither restarts the other.

    decide.py     what to do next: a pure function of what was seen
    yarn.py       what YARN runs, as the active ResourceManager tells it
    registry.py   what must outlive a gateway, in ZooKeeper
    submit.py     spark-submit, as a child that is never waited for
    daemon.py     see, decide, act; then again
    metrics.py    what Prometheus is told, and lag.py how far jobs are behind Kafka
    compatibility.py   may a version go on from the checkpoints that are there?
    declarations.py    can its declared jobs be run?
    upkeep.py     what has grown is cut back, once a day
    recount.py    a job's rows are counted again, for an audit
    commands.py   what operators and deployments call
"""
