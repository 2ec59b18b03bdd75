"""Reads tau-bench: a JSON list of trials `{task_id, reward, info, traj, trial}`, with messages as in OpenAI's chat.

The source states no times, no model and no reason why a trial ended. A trial ends when the user says the stop word,
when a tool transfers the user to a person, or at the step limit. So the reason is inferred from the last message. A
turn is the agent's work on one message of the user.
"""

from collections.abc import Iterator
from typing import Any

from gesta.importers.chat import Chat
from gesta.importers.foreign import Foreign, Oddities, digest_json, plain_name
from gesta.importers.format import Format, members_of
from gesta.importers.message import CUT, KEPT, said
from gesta.importers.source import BadImport, Piece, Source
from gesta.kinds import Error

AGENT = "agent"
"""Name of the runs, because the source does not name the agent."""
STOP = "###STOP###"
LAST_TOOLS = ("transfer_to_human_agents",)
"""Tools whose result ends a trial."""
MEMBERS = KEPT | members_of("""task_id reward info trial traj""")


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield each trial of a file, converted to entries of Gesta. Raises BadImport.

    `oddities` counts problems of the source by name, such as a call without a result.
    """
    empty = True
    for piece in source.pieces():
        if piece.key or piece.place is None:
            raise BadImport(source.path, f"expected a JSON list of trials, found {piece.path}")
        empty = False
        yield _trial(piece, source.path, oddities)
    oddities["no-conversations"] += empty


def _trial(piece: Piece, path: str, oddities: Oddities) -> Foreign:
    messages = piece.value.get("traj") if isinstance(piece.value, dict) else None
    if not isinstance(messages, list):
        where = f"{piece.path}.traj" if isinstance(piece.value, dict) else piece.path
        raise BadImport(path, f"expected a trial with its list of messages, found something else at {where}")
    chat = Chat(AGENT, oddities)
    chat.notes(piece.value, ("traj",))
    names: dict[str, str] = {}
    chat.hear(messages, lambda message, _: said(message, names, oddities))
    own = piece.value.get("task_id")
    name = plain_name(piece.place if own is None else own, piece.value.get("trial"))
    entries = chat.finish(*_ending(messages[-1] if messages else None), inferred=True)
    return Foreign(id=name, name=AGENT, digest=digest_json(piece.value), entries=entries, plain=True)


def _ending(last: Any) -> tuple[Any, Error | None]:
    """Return why the last turn ended, and its error, both inferred from the last message."""
    role, content = (last.get("role"), last.get("content")) if isinstance(last, dict) else ("", "")
    stopped = role == "user" and isinstance(content, str) and STOP in content
    if role in ("", "assistant") or stopped or (role == "tool" and last.get("name") in LAST_TOOLS):
        return "answered", None
    return "limit", Error(type="steps", message=CUT)


FORMATS = (Format("tau-bench", "a list of trials with `traj`", "list", ("traj",), read, members=MEMBERS),)
