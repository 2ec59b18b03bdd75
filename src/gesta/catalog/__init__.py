"""The tools and prompts of a folder, found by name, by words and by annotations, each with its version from git.

A catalog stores no index: it is read from the files of the folder. Reading runs no code of the files. A file runs only
when `Catalog.tools` returns one of its tools.
"""

ORDER = ("version", "item", "index")
"""Files in reading order: each imports only files before it."""
