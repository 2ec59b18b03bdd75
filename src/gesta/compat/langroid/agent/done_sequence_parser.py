"""Names of `langroid.agent.done_sequence_parser`."""

from gesta.compat.langroid.done_sequences import parse_done_sequence, parse_done_sequences

__all__ = ["parse_done_sequence", "parse_done_sequences"]
