"""Implementations of `gesta.store.Store`, which keeps a record: in memory, in one SQLite file, and in PostgreSQL.

A record is the stored history of all runs of agents. A record in memory ends with the process. A record in SQLite
survives a kill of the process at any moment. A record in PostgreSQL is shared by many machines. All three pass
`gesta.testing.StoreContract`.
"""

ORDER = (
    "common",
    "sharing",
    "counted",
    "views",
    "tables",
    "sqlite_door",
    "effects",
    "pruning",
    "memory",
    "locks",
    "sqlite_open",
    "sqlite_repair",
    "sqlite_guard",
    "sqlite_sight",
    "sqlite_backup",
    "sqlite_saving",
    "sqlite_works",
    "sqlite_writer",
    "sqlite_reader",
    "sqlite",
    "words",
    "postgres_tables",
    "run_index",
    "session_list",
    "postgres_door",
    "postgres_open",
    "postgres_holding",
    "postgres_leases",
    "postgres_effects",
    "postgres_transaction",
    "postgres_writer",
    "postgres_reader",
    "postgres",
)
