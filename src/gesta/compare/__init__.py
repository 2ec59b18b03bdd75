"""What becomes of a recorded run when something else is done with it: replayed, forked, compared, kept as a case.

`same` says when two entries are the same, `stage` is a record that answers in place of the outside, `replaying` takes a
run again on it; `forks` goes on with a run from somewhere else, `differences` compares two runs. `cases` keeps runs as
tests, and `plugin` has pytest collect them.
"""
