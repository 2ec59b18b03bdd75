"""The retail world: a shop's database as a SQLite file, the tools an agent works it with, and recorded conversations.

The tools follow the retail domains of tau-bench and tau2-bench (both MIT licensed); their data and recordings are
read from a corpus folder and are no part of this repository.
"""
