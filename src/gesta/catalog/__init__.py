"""The tools and prompts of a folder, found by name, by words and by annotations, each with its version from git.

No index is stored: a catalog is read from the files of the folder. No code in a file runs until one of its tools is
requested.
"""

ORDER = ("version", "item", "index")
"""Files in reading order: each imports only files before it."""
