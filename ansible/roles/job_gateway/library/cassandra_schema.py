#!/usr/bin/python
"""Ansible module: a keyspace and its tables, from a file of CREATE … IF NOT EXISTS statements."""

import re

from ansible.module_utils.basic import AnsibleModule
from cassandra import DriverException
from cassandra.cluster import Cluster, NoHostAvailable

DOCUMENTATION = """
---
module: cassandra_schema
short_description: Keyspaces and tables of a CQL file
description:
  - Runs those statements whose keyspace or table isn't there yet; one that is there stays as it is.
  - Needs cassandra-driver in the interpreter it is run with.
options:
  statements:
    description: CREATE KEYSPACE and CREATE TABLE statements, each name with its keyspace;
      C(:name) stands for a value.
    type: str
    required: true
  hosts:
    description: Cassandra nodes to ask.
    type: list
    elements: str
    required: true
  port:
    description: Their port for clients.
    type: int
    required: true
  values:
    description: What stands for each C(:name) of the statements.
    type: dict
    required: true
attributes:
  check_mode: {support: full, description: Reports what it would create}
author: Millrace
"""

CREATE = re.compile(r"CREATE (?:KEYSPACE|TABLE) IF NOT EXISTS ([\w.]+)", re.IGNORECASE)


def statements(text, values):
    """Name → statement, in the order of the file. KeyError for a value that wasn't given."""
    text = re.sub(r"--.*", "", text)
    text = re.sub(r":([a-z]+)", lambda found: str(values[found[1]]), text)
    found = [part.strip() for part in text.split(";") if part.strip()]
    return {CREATE.match(statement)[1].lower(): statement for statement in found}


def existing(session):
    keyspaces = session.execute("SELECT keyspace_name FROM system_schema.keyspaces")
    tables = session.execute("SELECT keyspace_name, table_name FROM system_schema.tables")
    return {row.keyspace_name for row in keyspaces} | {".".join(row) for row in tables}


def main():
    module = AnsibleModule(
        argument_spec={
            "statements": {"type": "str", "required": True},
            "hosts": {"type": "list", "elements": "str", "required": True},
            "port": {"type": "int", "required": True},
            "values": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    wanted = statements(module.params["statements"], module.params["values"])
    try:
        with Cluster(module.params["hosts"], port=module.params["port"]) as cluster:
            session = cluster.connect()
            there = existing(session)
            missing = {name: text for name, text in wanted.items() if name not in there}
            if not module.check_mode:
                for text in missing.values():
                    session.execute(text, timeout=60)
    except (DriverException, NoHostAvailable) as error:
        module.fail_json(msg=f"Cassandra: {error}")
    created = "".join(f"{text};\n" for text in missing.values())
    module.exit_json(changed=bool(missing), diff={"before": "", "after": created})


if __name__ == "__main__":
    main()
