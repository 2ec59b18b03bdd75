"""Folds over entries: each file answers one question about a run."""

ORDER = ("steps", "lc", "task_log", "lineage", "across", "prov", "losses", "stats")
