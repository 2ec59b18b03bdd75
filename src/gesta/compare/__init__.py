"""Replays a recorded run, forks it, compares it with another run, or keeps it as a test case.

`same` compares two entries, `stage` is a record that answers in place of models and tools, and `replaying` runs a run
again on it; `forks` continues a run from an earlier entry, `differences` compares two runs. `cases` keeps runs as
tests, and `plugin` makes pytest collect them. `requests` makes requests again, to compare one with the one before it.
"""
