"""What can be done with a recorded run: it is replayed, forked, compared with another, or kept as a case.

`same` compares two entries, `stage` is a record that answers in place of models and tools, and `replaying` runs a run
again on it; `forks` goes on with a run from an earlier entry, `differences` compares two runs. `cases` keeps runs as
tests, and `plugin` makes pytest collect them.
"""
