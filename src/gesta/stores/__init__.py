"""Makers of `gesta.store.Store`: memory, and SQLite in one file.

A store in memory ends with the process and is what the contract means in plain Python; one in SQLite survives a kill
at any instruction. Both pass `gesta.testing.StoreContract`.
"""

ORDER = ("common", "tables", "effects", "memory", "oslock", "sqlite_open", "sqlite_writer", "sqlite_reader", "sqlite")
