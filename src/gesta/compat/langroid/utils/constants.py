"""The names of Langroid's module `langroid.utils.constants`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.signals import AT, DONE, NO_ANSWER, PASS, PASS_TO, SEND_TO, TOOL, USER_QUIT_STRINGS

__all__ = ["AT", "DONE", "NO_ANSWER", "PASS", "PASS_TO", "SEND_TO", "TOOL", "USER_QUIT_STRINGS"]
