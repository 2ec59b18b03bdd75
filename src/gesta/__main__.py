"""Runs the command-line program `gesta`: `python -m gesta` and `gesta` do the same."""

from gesta.cli import main

main()
