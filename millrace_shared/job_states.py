"""The table ``job_states``: what each job does, told by the driver that leads.

spark-jobs/schema.cql has the columns' types, and what they mean.
"""

TABLE = "job_states"
COLUMNS = ("job", "state", "trouble", "failed_since", "runbook", "updated")
SELECT = f"SELECT {', '.join(COLUMNS)} FROM {{keyspace}}.{TABLE}"
