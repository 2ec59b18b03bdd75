"""A workflow is an async program that acts for an agent by calling methods ("verbs") such as `call` and `ask`.

Each step of a workflow is done once: after a crash, finished steps are read from the record.
"""

ORDER = (
    "step",
    "verbs",
    "turn",
)
"""Files in reading order: each imports only files before it."""
