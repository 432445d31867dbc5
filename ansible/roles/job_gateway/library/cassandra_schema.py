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
  - Runs those statements whose keyspace or table isn't there yet. A table that is there stays as it
    is, but for columns that it lacks, for how long it keeps its rows, and for how it is compacted.
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
  compaction:
    description: >-
      How the keyspaces' tables are to be compacted, also those that others made. It is no part of
      the statements, as it is to be the nodes' own default.
    type: dict
    required: true
attributes:
  check_mode: {support: full, description: Reports what it would do}
author: Millrace
"""

CREATE = re.compile(r"CREATE (?:KEYSPACE|TABLE) IF NOT EXISTS ([\w.]+)", re.IGNORECASE)
COLUMN = re.compile(r'^\s+("?\w+"?) (\w+)(?: PRIMARY KEY)?,?$', re.MULTILINE)
KEPT = re.compile(r"default_time_to_live = (\d+)", re.IGNORECASE)


def statements(text, values):
    """Name → statement, in the order of the file. KeyError for a value that wasn't given."""
    text = re.sub(r" *--.*", "", text)
    text = re.sub(r":([a-z]+)", lambda found: str(values[found[1]]), text)
    found = [part.strip() for part in text.split(";") if part.strip()]
    return {CREATE.match(statement)[1].lower(): statement for statement in found}


def existing(session):
    """Name → seconds that rows are kept, 0 for ever, and columns; None for a keyspace."""
    keyspaces = session.execute("SELECT keyspace_name FROM system_schema.keyspaces")
    tables = session.execute(
        "SELECT keyspace_name, table_name, default_time_to_live FROM system_schema.tables"
    )
    columns = {}
    for row in session.execute(
        "SELECT keyspace_name, table_name, column_name FROM system_schema.columns"
    ):
        columns.setdefault((row.keyspace_name, row.table_name), set()).add(row.column_name)
    return {row.keyspace_name: None for row in keyspaces} | {
        f"{row.keyspace_name}.{row.table_name}": (
            row.default_time_to_live,
            columns[row.keyspace_name, row.table_name],
        )
        for row in tables
    }


def changes(wanted, there):
    """The statements that make of what is there what is wanted."""
    for name, text in wanted.items():
        if name not in there:
            yield text
        elif there[name]:
            kept, columns = there[name]
            for column, kind in columns_of(text).items():
                if column.strip('"') not in columns:
                    yield f"ALTER TABLE {name} ADD {column} {kind}"
            if kept != kept_seconds(text):
                yield f"ALTER TABLE {name} WITH default_time_to_live = {kept_seconds(text)}"


def compactions(session):
    """Name → how each table is compacted; a class is named without its package."""
    tables = session.execute(
        "SELECT keyspace_name, table_name, compaction FROM system_schema.tables"
    )
    return {
        (row.keyspace_name, row.table_name): {
            key: value.rpartition(".")[2] if key == "class" else value
            for key, value in row.compaction.items()
        }
        for row in tables
    }


def recompactions(keyspaces, there, compaction):
    """The statements by which all tables of some keyspaces are compacted alike."""
    for (keyspace, table), options in there.items():
        if keyspace in keyspaces and not compaction.items() <= options.items():
            yield f'ALTER TABLE {keyspace}."{table}" WITH compaction = {compaction}'


def columns_of(statement):
    """Column → type, as a statement that makes a table has them: a line for each."""
    return dict(COLUMN.findall(statement))


def kept_seconds(statement):
    found = KEPT.search(statement)
    return int(found[1]) if found else 0


def main():
    module = AnsibleModule(
        argument_spec={
            "statements": {"type": "str", "required": True},
            "hosts": {"type": "list", "elements": "str", "required": True},
            "port": {"type": "int", "required": True},
            "values": {"type": "dict", "required": True},
            "compaction": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    wanted = statements(module.params["statements"], module.params["values"])
    compaction = module.params["compaction"]
    try:
        with Cluster(module.params["hosts"], port=module.params["port"]) as cluster:
            session = cluster.connect()
            made = [
                *changes(wanted, existing(session)),
                *recompactions(wanted, compactions(session), compaction),
            ]
            if not module.check_mode:
                for text in made:
                    session.execute(text, timeout=60)
    except (DriverException, NoHostAvailable) as error:
        module.fail_json(msg=f"Cassandra: {error}")
    after = "".join(f"{text};\n" for text in made)
    module.exit_json(changed=bool(made), diff={"before": "", "after": after})


if __name__ == "__main__":
    main()
