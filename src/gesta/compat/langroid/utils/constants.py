"""Names of `langroid.utils.constants`."""

from gesta.compat.langroid.signals import AT, DONE, NO_ANSWER, PASS, PASS_TO, SEND_TO, TOOL, USER_QUIT_STRINGS

__all__ = ["AT", "DONE", "NO_ANSWER", "PASS", "PASS_TO", "SEND_TO", "TOOL", "USER_QUIT_STRINGS"]
