"""Folds over entries: each file answers one question about a run."""

ORDER = ("lineage", "drawn", "across", "prov_names", "prov_chain", "prov", "losses", "stats", "history", "sessions")
"""Each file may import those before it."""
