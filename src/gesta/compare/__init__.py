"""Replays a recorded run, forks it, compares it with another run, or keeps it as a test case.

A run is the recorded list of entries about an agent's work. A replay runs the agent's code again, and the recorded
answers are used in place of the model and the tools. `stage` is the store to which a replay writes and which supplies
those answers. `replaying` drives the replay, and `same` compares each new entry with the recorded one. `forks`
continues a run from an earlier entry, and `differences` compares two runs. `cases` keeps runs as tests, which `plugin`
makes pytest collect. `requests` rebuilds the requests sent to a model.
"""
