"""`python -m gesta` is the command `gesta`."""

from gesta.cli import main

main()
