"""What programs on the hosts must have the same. Each carries its own copy, and no package for it.

So nothing here needs a release, a version or an order of deployment: a change restarts the jobs,
their gateway, the API and the collector. While a version is handed over, programs of both versions
run: records that one writes for another must be readable by the one before.

    strict.py         JSON as dataclasses, each key and type checked
    names.py          configs/names.yaml as programs read it
    driver_record.py  what a driver says of itself in ZooKeeper
    job_progress.py   the table in Cassandra that says how far each job is
    keys.py           keys of who sends events and who reads insights, and how a door follows them
    record_rules.py   what a record of JSON may be, whatever its stream
    buckets.py        which of a day's partitions a row is in
    books.py          when a batch in a stream's books comes out even
"""
