"""The viewer: pages on a record, for a browser on this machine. It reads, and sends what a person answers.

`app` is the application; `data` makes its JSON from the views; `live` follows the record; `gate` lets in only the
browser that has the token. The pages are in `static`, as modules that a browser runs as they are.
"""
