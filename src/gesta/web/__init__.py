"""The viewer: pages about a record, for a browser on this machine. It only reads the record.

`app` is the application; `data` makes its JSON from the views; `gate` accepts only the browser that has the token. The
pages are in `static`, as modules that a browser runs unchanged.
"""
