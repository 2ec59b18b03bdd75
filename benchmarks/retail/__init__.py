"""The retail world: a shop's database as a SQLite file, the tools of its agent, and recorded conversations.

The tools follow the retail domains of tau-bench and tau2-bench (both MIT licensed). Their data and recordings are
read from a corpus folder and are no part of this repository.
"""
