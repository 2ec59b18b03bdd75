"""Reads evaluation logs of Inspect AI, as a JSON document or as an `.eval` archive.

A log has samples: tasks that were tried once in each epoch. Each try becomes one run with a span `import`, a turn with
the messages, and a span `review` with the scores. Facts about the whole log are the member `log` in the state of each
run's first span. Lists with an element for each sample are in the first run only. A log without samples becomes one run
with only that state. An archive that was not finished has no `header.json`. Arguments of the model that give access to
an account are hidden.

Source: UKGovernmentBEIS/inspect_ai, `log/_log.py`, `log/_recorders/eval.py` and `event/`, 2026-11.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gesta.importers.chat import Chat
from gesta.importers.foreign import Foreign, Members, Oddities, digest_json, plain_name, same, without_keys
from gesta.importers.format import Format, members_of
from gesta.importers.inspect_message import dig
from gesta.importers.inspect_sample import EMPTY, Log, Sample, ending
from gesta.importers.message import KEPT
from gesta.importers.source import BadImport, Source
from gesta.kinds import Error, Reason

LIST = "samples"
HEADER, START, REDUCTIONS = "header.json", "_journal/start.json", "reductions.json"
SUMMARIES, JOURNAL, SAMPLES = "summaries.json", "_journal/summaries/", "samples/"
BY_SAMPLE = (("reductions",), ("results", "sample_reductions"), ("eval", "dataset", "sample_ids"), ("members",))
"""Paths of the lists with an element for each sample, or for each file of the archive. Only the first run gets them."""

Object = dict[str, Any]
Samples = Iterator[tuple[str, Any, list[Object]]]
"""An iterator over the samples. Each is a tuple: its place in the file, its value, and its summaries."""
MEMBERS = KEPT | members_of(
    """log version status eval plan results stats error invalidated log_updates samples reductions tags metadata
    location etag start members summary id epoch input choices target sandbox files setup messages output scores
    store events timelines model_usage role_usage started_at completed_at total_time working_time uuid invalidation
    error_retries attachments events_data limit message_pool transcript implied-messages retries completed
    message_count source model internal event span_id parent_id working_start pending view decision message modified
    explanation approver stage timestamp action reasoning parse_error arguments format citations custom
    turn_count"""
)


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield each sample of a log, converted to entries of Gesta. Raises BadImport.

    `oddities` counts problems of the source by name, such as a call without a result.
    """
    names = source.names()
    members, samples = _archive(source, names) if names else _document(source)
    spec = members.get("eval")
    if not isinstance(spec, dict):
        raise BadImport(source.path, "expected an evaluation log with 'eval', an object")
    digest = digest_json(members)
    members["eval"] = spec | {key: without_keys(spec[key]) for key in ("model_args",) if key in spec}
    task = plain_name(spec.get("task")).rpartition("/")[2]
    agent = plain_name(spec.get("solver")) or task or "agent"
    at, _ = Members(spec, Counter()).time("created")
    log = Log(agent, plain_name(spec.get("model")) or None, members.get("status") == "success", at)
    note, ids = members, set[str]()
    for place, (where, sample, summaries) in enumerate(samples):
        if not isinstance(sample, dict):
            raise BadImport(source.path, f"expected a sample, found {type(sample).__name__} at {where}")
        own = plain_name(sample.get("id"), sample.get("epoch")) or str(place)
        while own in ids:
            own += f"~{place}"
        ids.add(own)
        more = [{key: each[key] for key in each if not same(sample.get(key), each[key])} for each in summaries]
        more = [each for each in more if each]
        entries = Sample(sample, log, oddities).tell({"log": note, "summary": more[0] if len(more) == 1 else more})
        yield Foreign(id=own, name=agent, digest=digest_json(sample), entries=entries)
        note = _short(members)
    if not ids:
        yield _alone(members, log, digest, oddities)


def _document(source: Source) -> tuple[Object, Samples]:
    """Return the members of a JSON document except its samples, and an iterator over the samples."""
    pieces = [piece for piece in source.pieces(LIST) if piece.place is None or not piece.key]
    if any(not piece.key for piece in pieces):
        raise BadImport(source.path, "expected a JSON object with 'eval', found something else")
    samples = (piece for piece in source.pieces(LIST) if piece.place is not None)
    return {piece.key: piece.value for piece in pieces}, ((piece.path, piece.value, []) for piece in samples)


def _archive(source: Source, names: tuple[str, ...]) -> tuple[Object, Samples]:
    """Return what an archive says about the whole log, and an iterator over its samples.

    Args:
        names: names of all files in the archive.
    """
    listed = [name for name in names if name.startswith(SAMPLES) and name.endswith(".json")]
    journal = [name for name in names if name.startswith(JOURNAL) and name.endswith(".json")]
    other = [name for name in names if name not in listed]
    documents = source.members([name for name in other if name.endswith(".json")], together=True)
    found = {each.path: each.value for each in documents}
    header, start = found.pop(HEADER, None), found.pop(START, None)
    members = dict(header if isinstance(header, dict) else start if isinstance(start, dict) else {})
    if isinstance(header, dict) and isinstance(start, dict):
        members["start"] = {key: value for key, value in start.items() if not same(header.get(key), value)}
    members["reductions"] = found.pop(REDUCTIONS, members.get("reductions"))
    summaries: dict[str, list[Object]] = {}
    for name in [*journal, SUMMARIES]:
        every = found.pop(name, [])
        for each in every if isinstance(every, list) else [every]:
            about = summaries.setdefault(_key(each), [])
            about += [each] if isinstance(each, dict) and not any(same(each, one) for one in about) else []
            if not isinstance(each, dict):
                found.setdefault(name, []).append(each)
    members["members"] = found | {name: None for name in other if not name.endswith(".json")}
    members = {key: value for key, value in members.items() if value not in EMPTY}
    return members, _unpacked(source, listed, summaries)


def _unpacked(source: Source, names: list[str], summaries: dict[str, list[Object]]) -> Samples:
    """Yield the samples of an archive, and then the last summary of each sample that has no file.

    Args:
        names: the files in the archive that hold samples.
        summaries: the summaries of each sample, by a digest of the sample's id and epoch.
    """
    for document in source.members(names):
        yield document.path, document.value, summaries.pop(_key(document.value), [])
    for about in summaries.values():
        for place, each in enumerate(about[-1:]):
            yield f"{SUMMARIES}[{place}]", each, about[:-1]


def _key(sample: Any) -> str:
    return digest_json([dig(sample, "id"), dig(sample, "epoch")])


def _short(members: Object) -> Object:
    """Return the members of a log without the lists that have an element for each sample."""
    made = dict(members)
    for *path, last in BY_SAMPLE:
        inside = made
        for step in path:
            if not isinstance(inside.get(step), dict):
                break
            inside[step] = dict(inside[step])
            inside = inside[step]
        else:
            inside.pop(last, None)
    return made


def _alone(members: Object, log: Log, digest: str, oddities: Oddities) -> Foreign:
    """Return a log without samples as a conversation with only the facts about the log.

    Args:
        members: the members of the log.
        digest: a digest of the members as they were read.
    """
    chat = Chat(log.agent, oddities, log.model)
    for key, value in members.items():
        if value not in EMPTY:
            chat.note(key, value)
    chat.began(log.at)
    status = plain_name(members.get("status")) or "unknown"
    reason: Reason
    reason, error = ending(members.get("error"), None)
    if error is None and not log.whole:
        reason = "failed" if status == "error" else "cancelled"
        error = Error(type=status, message=f"The source says that its status is {status}.")
    spec = members["eval"]
    own = next((name for key in ("eval_id", "run_id", "task_id") if (name := plain_name(spec.get(key)))), "log")
    return Foreign(id=own, name=log.agent, digest=digest, entries=chat.finish(reason, error))


FORMATS = (
    Format(
        "inspect",
        "a log of Inspect AI",
        "object",
        ("status", "eval", "plan"),
        read,
        members=MEMBERS,
        within=("function", "log"),
    ),
    Format(
        "inspect",
        "an `.eval` archive of Inspect AI",
        "zip",
        (HEADER,),
        read,
        members=MEMBERS,
        within=("function", "log"),
    ),
    Format("inspect", "one that was not finished", "zip", (START,), read, members=MEMBERS, within=("function", "log")),
)
