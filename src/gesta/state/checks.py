"""Adds `check` entries to the state of a run. A check holds a hook's verdict on a message, request, call or answer.

Hooks are functions of an agent that may allow, change or refuse these.
"""

from collections.abc import Mapping

from gesta.entry import Entry
from gesta.kinds import CheckContent, Error
from gesta.state.calls import REFUSED, OpenCall
from gesta.state.turn import Turn


def take_check(content: CheckContent, entry: Entry, turn: Turn, calls: Mapping[int, OpenCall]) -> None:
    """Add a `check` entry to the state of the open turn, and to the state of the call that it is about, if any."""
    call, seq = calls.get(content.of), entry.seq
    turn.returned(entry)
    if content.point == "call":
        if call is not None:
            asks = call.check is not None and call.check.verdict == "asked" and content.verdict == "changed"
            call.checked, call.check = seq, call.check if asks else content  # several hooks may have a verdict
            if content.verdict == "changed" and isinstance(content.value, dict):
                call.made, call.args = call.args, content.value
        return
    turn.checked.add(turn.request_mark if content.point == "request" else content.of)
    if content.verdict == "refused":
        turn.fatal = Error(type=REFUSED, message=content.words or "")
    elif content.point == "answer" and content.verdict == "changed":
        turn.changed, turn.value = seq, content.value
