"""Replays a recorded run, forks it, compares it with another run, or keeps it as a test case.

A replay runs the agent's code again while recorded answers take the place of the model and the tools. `stage` is the
record that a replay writes to and that supplies those answers. `replaying` drives the replay, and `same` compares each
new entry with the recorded one. `forks` continues a run from an earlier entry, and `differences` compares two runs.
`cases` keeps runs as tests, which `plugin` makes pytest collect. `requests` rebuilds the requests sent to a model.
"""
