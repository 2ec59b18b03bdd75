"""The check before a record in PostgreSQL is opened: nothing that Gesta did not make may run when its tables are used.

A record is the stored history of all runs (conversations of agents), in a schema of its own. The server itself runs
rules, triggers, defaults, generated columns, policies, and functions of the schema. A client cannot switch them off. So
a record is opened only if its tables are plain tables without any of these. Its views are not compared: a user who can
change them owns the schema, and can change the rows as well.
"""

from typing import Any

import psycopg

from gesta.errors import ForeignObjects
from gesta.stores.effects import OWN
from gesta.stores.views import EACH

TABLES = sorted(name for name in OWN if not name.startswith("gesta_"))
VIEWS = ["runs", *EACH]
INDEXES = ["opened", "inbox_run"]
KIND = """CASE relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
    WHEN 'f' THEN 'foreign table' WHEN 'p' THEN 'partitioned table' END"""

ODD = f"""WITH space AS (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1),
every AS (SELECT * FROM pg_catalog.pg_class WHERE relnamespace = (SELECT oid FROM space)),
ours AS (SELECT oid, relname FROM every WHERE relname = ANY($2))
SELECT format('%s %L', coalesce({KIND}, 'relation'), relname) FROM every
    WHERE (relname = ANY($2) AND relkind <> 'r') OR (relname = ANY($3) AND relkind <> 'v')
UNION ALL SELECT format('trigger %L on %L', tgname, relname) FROM pg_catalog.pg_trigger
    JOIN every ON every.oid = tgrelid
    WHERE NOT tgisinternal AND (relname = ANY($2) OR relname = ANY($3))
UNION ALL SELECT format('rule %L on %L', rulename, relname) FROM pg_catalog.pg_rewrite
    JOIN every ON every.oid = ev_class
    WHERE (relname = ANY($2) OR relname = ANY($3)) AND NOT (rulename = '_RETURN' AND relkind = 'v')
UNION ALL SELECT format('row level security on %L', relname) FROM every
    WHERE relname = ANY($2) AND (relrowsecurity OR relforcerowsecurity)
UNION ALL SELECT format('table %L, which inherits from %L', inhrelid::regclass, relname)
    FROM pg_catalog.pg_inherits JOIN ours ON ours.oid = inhparent
UNION ALL SELECT format('default or generated column %L of %L', attname, relname) FROM pg_catalog.pg_attrdef
    JOIN ours ON ours.oid = adrelid JOIN pg_catalog.pg_attribute ON attrelid = adrelid AND attnum = adnum
UNION ALL SELECT format('constraint %L on %L', conname, relname) FROM pg_catalog.pg_constraint
    JOIN ours ON ours.oid IN (conrelid, confrelid)
    WHERE contype IN ('c', 'f', 'x', 't') AND NOT (relname = 'record' AND pg_get_constraintdef(pg_constraint.oid) = $5)
UNION ALL SELECT format('index %L on %L', every.relname, ours.relname) FROM pg_catalog.pg_index
    JOIN ours ON ours.oid = indrelid JOIN every ON every.oid = indexrelid
    WHERE every.relname <> ALL($4) AND (indexprs IS NOT NULL OR indpred IS NOT NULL)
UNION ALL SELECT format('function %L', proname) FROM pg_catalog.pg_proc WHERE pronamespace = (SELECT oid FROM space)
UNION ALL SELECT format('operator %L', oprname) FROM pg_catalog.pg_operator
    WHERE oprnamespace = (SELECT oid FROM space)"""  # noqa: S608 - constants
CHECK = "CHECK ((one = 1))"
BESIDE = f"""SELECT format('%s %L', {KIND}, relname) FROM pg_catalog.pg_class
    JOIN pg_catalog.pg_namespace AS space ON space.oid = relnamespace
    WHERE nspname = $1 AND relkind IN ('r', 'v', 'm', 'f', 'p') AND relname <> ALL($2) AND relname <> ALL($3)
    ORDER BY relname"""  # noqa: S608 - constants


def admit(connection: psycopg.Connection[tuple[Any, ...]], schema: str, address: str) -> None:
    """Check that a record has no foreign rule, trigger, function or similar object, before its tables are read.

    Raises:
        ForeignObjects: an object that Gesta did not make would run. psycopg.Error: the check is not possible.
    """
    found = [str(one) for (one,) in connection.execute(ODD, (schema, TABLES, VIEWS, INDEXES, CHECK)).fetchall()]
    if found:
        raise ForeignObjects(address, found, "Look at it there, and drop what you do not know")
