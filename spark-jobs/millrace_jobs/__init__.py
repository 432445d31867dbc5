"""Millrace's streaming jobs: pure transforms, thin jobs, idempotent sinks, one driver.

A deployable of its own: everything it knows about the cluster stands in the configuration file that
a deployment renders (see `millrace_jobs.config`). A module imports only what is below it:

    main.py       what spark-submit runs; the gateway runs check, contract, upkeep and recount
    driver/       a driver process, from its start to its end
    leader/       starts the jobs, keeps them running and apart, drains them
    requests/     what operators ask of who leads: that records are retried
    reconcile/    the past counted beside itself, and readers switched to that
    standby/      keeps a driver warm with all jobs until it leads
    recount/      a job's rows, counted again and compared, or explained by their events
    programs/     the jobs archive and traffic
    declared/     how jobs are run that are one file each
    jobs/         those files
    quarantine/   records that a job fails by are found, and put aside
    query/        a job and its query: the protocol, the context, heartbeats, late events
    leadership/   the lease, fencing epochs, and what ends with a driver
    sinks/        Cassandra, the results topic, the archive, dead letters, the live stream
    inputs/       topics, offsets, and whether a checkpoint goes on where its job stopped
    transforms/   DataFrames to DataFrames
    kinds.py      which class runs which job, and what its checkpoint holds for good
    settings.py   what the framework reads of a job's settings, each with its type
"""
