"""Reads tau2-bench, `{timestamp, info, tasks, simulations}`, in which both the agent and the user have tools.

The source has no system message. The domain's policy, which was part of that message, is used as the instructions and
marked as inferred. Times have no zone and are read as UTC. The price of a message is in `meta.cost_usd`, the provider's
reply in `meta.raw`; for words of the user, both stay in `extra`. A file may contain no simulation at all. A turn is the
agent's work on one message of the user.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from gesta.importers.chat import Chat, Said
from gesta.importers.foreign import Foreign, Members, Oddities, digest_json, list_in, object_of, plain_name
from gesta.importers.format import Format, members_of
from gesta.importers.message import KEPT, Form, said
from gesta.importers.source import BadImport, Piece, Source
from gesta.kinds import Error, Reason

LIST = "simulations"
FORM = Form(types=(), by="requestor", answers="id", calling=("assistant", "user"))
ENDINGS: Mapping[str, Reason] = MappingProxyType(
    {
        "user_stop": "answered",
        "agent_stop": "answered",
        "max_steps": "limit",
        "timeout": "limit",
        "too_many_errors": "failed",
        "agent_error": "failed",
        "user_error": "failed",
        "infrastructure_error": "failed",
        "unexpected_error": "failed",
    }
)
"""Gesta's reason for the end of the last turn, by the `termination_reason` of the source."""


class File:
    """The facts that apply to all simulations of a file."""

    def __init__(self, members: dict[str, Any]) -> None:
        info = object_of(members.get("info"))
        agent, environment = object_of(info.get("agent_info")), object_of(info.get("environment_info"))
        policy = environment.get("policy")
        self.policy = policy if isinstance(policy, str) else None
        self.model = plain_name(agent.get("llm")) or None
        self.agent = plain_name(environment.get("domain_name")) or "agent"
        tasks = members.get("tasks")
        known = [task for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
        self.tasks = {plain_name(task.get("id")): task for task in known if plain_name(task.get("id"))}
        if self.policy is not None:  # the policy goes into the request header instead
            environment = {key: value for key, value in environment.items() if key != "policy"}
            info = info | {"environment_info": environment}
        self.rest = {key: value for key, value in members.items() if key not in ("tasks", "info")} | {"info": info}


MEMBERS = KEPT | members_of(
    """results timestamp info tasks simulations simulation_index task id task_id start_time end_time duration
    termination_reason agent_cost user_cost reward_info messages trial seed mode policy hallucination_retries_used
    is_audio is_final_chunk contains_speech cost usage raw_data generation_time_seconds errors turn_idx requestor
    error reasoning ticks effect_timeline speech_environment"""
)


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield each simulation of a file, converted to entries of Gesta. Raises BadImport.

    `oddities` counts problems of the source by name, such as a call without a result.
    """
    file = File({piece.key: piece.value for piece in source.pieces(LIST) if piece.place is None})
    if LIST in file.rest:
        raise BadImport(source.path, f"expected a list at $.{LIST}, found {type(file.rest[LIST]).__name__}")
    empty = True
    for piece in source.pieces(LIST):
        if piece.place is not None:
            if not piece.key:
                raise BadImport(source.path, f"expected a JSON object with {LIST!r}, found a list")
            empty = False
            yield _simulation(piece, file, source.path, oddities)
    oddities["no-conversations"] += empty


def _simulation(piece: Piece, file: File, path: str, oddities: Oddities) -> Foreign:
    whole = object_of(piece.value)
    missing = f"expected a simulation with a list of messages, found none at {piece.path}"
    messages = list_in(whole, "messages", path, missing)
    chat = Chat(file.agent, oddities, file.model)
    chat.note("results", file.rest)
    task = file.tasks.get(plain_name(whole.get("task_id")))
    if task is not None:
        chat.note("task", task)
    chat.notes(whole, ("messages",))
    if file.policy is not None or file.model is not None:
        chat.header(file.policy, inferred=("instructions",) if file.policy else ())
    chat.hear(messages, lambda message, place: spoken(message, place, oddities))
    own = plain_name(whole.get("id")) or plain_name(whole.get("task_id"), whole.get("trial")) or str(piece.place)
    reason, error, inferred = ending(whole.get("termination_reason"), oddities)
    entries = chat.finish(reason, error, inferred=inferred)
    return Foreign(id=own, name=file.agent, digest=digest_json(whole), entries=entries, plain=True)


def ending(said: Any, oddities: Oddities) -> tuple[Reason, Error | None, bool]:
    """Return why the last turn ended, its error, and whether the reason is inferred.

    Args:
        said: the `termination_reason` of the source.
    """
    if said is None:
        return "answered", None, True
    reason = ENDINGS.get(said) if isinstance(said, str) else None
    oddities["unknown-ending"] += reason is None
    name = plain_name(said) or "unknown"
    error = None if reason == "answered" else Error(type=name, message=f"The source says that it ended by {name}.")
    return reason or "failed", error, reason is None


def spoken(message: Any, place: int, oddities: Oddities) -> Said | None:
    """Return a message as a `Said`, the form of all chat importers; `None` if the value is not a message.

    Args:
        place: number of the message in the simulation.
    """
    words = said(message, {}, oddities, FORM)
    if words is None:
        return None
    members = Members(words.extra or {}, oddities)
    members.drop("turn_idx", place)
    at, sure = members.time("timestamp")
    if words.role == "tool":
        by_user, error = members.take("requestor", str), members.take("error", bool)
        odd = {"requestor": by_user} if by_user not in (None, "assistant", "user") else {}
        rest = {**odd, **(members.rest() or {})} or None
        return replace(words, error=error, by_user=by_user == "user", at=at, sure=sure, extra=rest)
    if words.role != "assistant":
        return replace(words, at=at, sure=sure, extra=members.rest())
    members.drop("errors", [])
    oddities["message-errors"] += bool(message.get("errors"))
    usage, raw = members.take("usage", dict), members.take("raw_data", dict)
    reasoning = members.take("reasoning", str) if words.reasoning is None else words.reasoning
    generated = usage is not None or raw is not None or reasoning is not None
    cost = members.take("cost", (int, float)) if generated else None
    finish = raw.get("finish_reason") if raw else None
    meta = {key: value for key, value in (("cost_usd", cost), ("raw", raw)) if value is not None}
    return replace(
        words,
        generated=generated,
        reasoning=reasoning,
        finish_reason=finish if isinstance(finish, str) else None,
        usage=usage,
        meta=meta or None,
        at=at,
        sure=sure,
        extra=members.rest(),
    )


FORMATS = (
    Format(
        "tau2-bench",
        "results with `simulations`",
        "object",
        ("simulations",),
        read,
        members=MEMBERS,
        within=("function", "results"),
    ),
)
