"""The tools and prompts of a folder, found by name, by words and by annotations, each with its version from git.

Nothing is kept beside the folder: a catalog is read from it, and no code of it runs until a tool is asked for.
"""

ORDER = ("version", "item", "index")
"""Each file may import those before it."""
