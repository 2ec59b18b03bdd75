"""The viewer: pages about a record, for a browser on this machine, where a person can also answer waiting runs.

A record is the store of all runs; a run is a list of entries, the recorded facts about an agent's work. `app` is the
web application. `data` makes the JSON of the pages from the views. `graph` and `layered` draw the lineage of an answer:
the entries that it was made from. `people` stores the answers of persons, and `gate` accepts only the browser that has
the token. The JavaScript modules of the pages are in `static`. `one_script` joins them into one script, which the
server sends, and which `folder` writes beside pages that open from a disk without a server.
"""
