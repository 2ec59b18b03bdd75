"""The viewer: pages about a record, for a browser on this machine, where a person can also answer waiting runs.

`app` is the application; `data` makes its JSON from the views, and `graph` with `layered` the picture of a lineage;
`people` sends the answers; `gate` accepts only the browser that has the token. The pages are in `static`, as modules,
of which `one_script` makes one script: for the server, and for a folder that opens from a disk (`folder`).
"""
