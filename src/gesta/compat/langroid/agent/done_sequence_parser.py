"""The names of Langroid's module `langroid.agent.done_sequence_parser`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.done_sequences import parse_done_sequence, parse_done_sequences

__all__ = ["parse_done_sequence", "parse_done_sequences"]
