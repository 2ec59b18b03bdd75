"""Real retail conversations, each broken in one way that models and servers are known for; none may stop a run.

Run `python -m benchmarks.retail.broken`: the tools and the world are the real ones, the model says the broken
messages. A row for each fault; it ends with 1 if a turn ended without an answer, a call without exactly one result, a
history was refused, or the model was not told what was wrong. `--all` breaks each conversation in every way.
"""

import hashlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec import Struct, field
from tests.validators.chat_completions import violations

import gesta
from benchmarks.retail.agent import chat_messages, desk
from benchmarks.retail.corpus import Conversation, corpus_folder, load_conversations, load_database, split
from benchmarks.retail.drive import results
from benchmarks.retail.reexecute import equal_results
from benchmarks.retail.world import World
from gesta import address
from gesta.kinds import RequestContent, ToolCallContent, ToolResultContent
from gesta.models.replay import from_messages
from gesta.prompt import Prompt

FILE = "tau2-bench/results/retail-gpt-4.1.json.gz"
CONVERSATIONS = 10
MEGABYTES_10 = 10 * 2**20

Message = dict[str, Any]
Spoil = Callable[[list[Message], int], list[str]]
"""Breaks a conversation at the message of its first call; gives what the model must read about that."""


class Broken(Struct, frozen=True):
    """A conversation's assistant messages with one fault."""

    fault: str
    messages: list[Message]
    told: list[str]
    """All of this stands in one result that the model is sent; nothing for a fault that Gesta mends by itself."""


class Check(Struct):
    """Counts over runs. Each of `results` is the only one of its call; `same` histories are those on record."""

    turns: int = 0
    calls: int = 0
    results: int = 0
    histories: int = 0
    valid: int = 0
    same: int = 0
    flaws: int = 0
    kept: int = 0
    derived: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def sound(self) -> bool:
        """Whether all holds that must hold of every run."""
        histories = self.valid == self.same == self.histories
        return histories and self.results == self.calls and not self.flaws and self.reasons.total() == self.turns

    def add(self, agent: gesta.Agent, entries: Sequence[gesta.Entry], outcomes: Sequence[gesta.Outcome]) -> bytes:
        """Count one run; give the body of the request that would be the next."""
        self.turns += len(outcomes)
        self.reasons.update(f"{it.reason}:{it.error.type}" if it.error else it.reason for it in outcomes)
        calls = [entry for entry in entries if isinstance(entry.content, ToolCallContent)]
        answered = Counter(entry.content.call for entry in entries if isinstance(entry.content, ToolResultContent))
        self.calls += len(calls)
        self.results += sum(answered[call.seq] == 1 for call in calls)
        body = b""
        for body, same in histories(agent, entries):
            wrong = violations(body)
            for line in wrong[:3]:
                print(f"{outcomes[0].session}: {line}")
            self.histories += 1
            self.valid += not wrong
            self.same += same
        own = [getattr(call.content, "tool_call_id", None) for call in calls]
        kept = sum(id == sent for id, sent in zip(own, sent_ids(body), strict=True))
        self.kept += kept
        self.derived += len(own) - kept
        return body


def histories(agent: gesta.Agent, entries: Sequence[gesta.Entry]) -> Iterator[tuple[bytes, bool]]:
    """Make the body of every request again, with whether its digest is on record; at last that of a next one."""
    prompt, header = Prompt(agent.formats(), agent.asked()), agent.header()
    envelope = agent.asked().envelope(header)
    for entry in entries:
        prompt.add(entry)
        if isinstance(entry.content, RequestContent):
            body = prompt.request(header, envelope, 0).body()
            yield body, hashlib.sha256(body).hexdigest() == entry.content.body_digest
    prompt.close()
    yield prompt.request(header, envelope, 0).body(), True


def sent_ids(body: bytes) -> list[str]:
    """Read the ids of the calls in a request."""
    return [call["id"] for message in json.loads(body)["messages"] for call in message.get("tool_calls") or ()]


# ------------------------------------------------------------------------------------------------------- the faults
def arguments_as(write: Callable[[str], str], *told: str) -> Spoil:
    """Write the arguments' text in another way; without `told`, such that they can still be read."""

    def spoil(messages: list[Message], at: int) -> list[str]:
        function = _function(messages, at)
        function["arguments"] = write(function["arguments"])
        return [f"rguments of {function['name']!r}", *told] if told else []

    return spoil


def named(rename: Callable[[str], str]) -> Spoil:
    """Call a tool by a name that none has; the message names the nearest one, or all."""

    def spoil(messages: list[Message], at: int) -> list[str]:
        function = _function(messages, at)
        right, function["name"] = function["name"], rename(function["name"])
        near = "get_order_details" if function["name"] == UNKNOWN else f"Did you mean {right!r}?"
        return [f"There is no tool {function['name']!r}.", near]

    return spoil


def wrong_type(messages: list[Message], at: int) -> list[str]:
    """Give an object for the first argument, which is a text."""
    args = json.loads(_function(messages, at)["arguments"])
    name = next(iter(args))
    _function(messages, at)["arguments"] = json.dumps(args | {name: {"value": args[name]}})
    return ["Expected `str`, got `object`", f"at `$.{name}`"]


def unknown_argument(messages: list[Message], at: int) -> list[str]:
    """Give an argument that the tool does not have."""
    args = json.loads(_function(messages, at)["arguments"])
    name = next(iter(args))
    _function(messages, at)["arguments"] = json.dumps(args | {f"{name}s": "x"})
    return [f"Unknown argument - at `$.{name}s`.", f"Did you mean {name!r}?"]


def no_id(messages: list[Message], at: int) -> list[str]:
    """Leave the id of the first call out."""
    del messages[at]["tool_calls"][0]["id"]
    return []


def empty_id(messages: list[Message], at: int) -> list[str]:
    """Make the id of the first call an empty text."""
    messages[at]["tool_calls"][0]["id"] = ""
    return []


def repeated_id(messages: list[Message], at: int) -> list[str]:
    """Give every later call the id of the first."""
    first = messages[at]["tool_calls"][0]["id"]
    for message in messages[at:]:
        for call in message["tool_calls"] or ():
            call["id"] = first
    return []


def empty_message(messages: list[Message], at: int) -> list[str]:
    """Say nothing at all before the first call."""
    messages.insert(at, {"role": "assistant", "content": "", "tool_calls": None})
    return []


def said_with_it(text: str) -> Spoil:
    """Say something beside the first call."""

    def spoil(messages: list[Message], at: int) -> list[str]:
        messages[at]["content"] = text
        return []

    return spoil


def _function(messages: list[Message], at: int) -> dict[str, Any]:
    found: dict[str, Any] = messages[at]["tool_calls"][0]["function"]
    return found


UNKNOWN = "issue_voucher"
NO_OBJECT = "Write a JSON object."
DIGITS = "7" * 5000
FAULTS: dict[str, Spoil] = {
    "arguments cut short": arguments_as(lambda text: text[: len(text) // 2], NO_OBJECT),
    "arguments are a list": arguments_as(lambda text: f"[{text}]", NO_OBJECT),
    "unknown tool": named(lambda _: UNKNOWN),
    "misspelt tool": named(lambda name: name[:-2] + name[:-3:-1]),
    "missing id": no_id,
    "empty id": empty_id,
    "id repeated by later calls": repeated_id,
    "argument of a wrong type": wrong_type,
    "unknown argument": unknown_argument,
    "empty message": empty_message,
    "10 MB of text": said_with_it("0123456789 abcde" * (MEGABYTES_10 // 16)),
    "lone surrogates in text": said_with_it("half \ud83d a pair \ude00 \udc80"),
    "lone surrogate in arguments": arguments_as(lambda text: text.replace('": "', '": "\\ud83d', 1)),
    "NaN in arguments": arguments_as(lambda text: text.replace('": "', '": NaN, "x": "', 1), "NaN is not JSON"),
    "5,000 digits in arguments": arguments_as(lambda text: text.replace('": "', f'": {DIGITS}, "x": "', 1), NO_OBJECT),
    "spaces in a tool's name": named(lambda name: name.replace("_", " ")),
}
"""Each fault once; the first ten are those of the issue, the others are worse."""


def broken(conversation: Conversation) -> list[Broken]:
    """Break a conversation in every way, each in a copy of its own."""
    said = chat_messages(conversation)[sum(it.role == "assistant" for it in split(conversation).unprompted) :]
    made = []
    for fault, spoil in FAULTS.items():
        copy = json.loads(json.dumps(said))
        at = next(place for place, message in enumerate(copy) if message["tool_calls"])
        made.append(Broken(fault, copy, spoil(copy, at)))
    return made


# -------------------------------------------------------------------------------------------------------- the drive
class Found(Check):
    """A `Check` of one broken conversation."""

    equal: int = 0
    """Results that are the recorded ones; the broken call's own may differ."""
    told: bool = False
    """Whether the model was sent what it must be told."""

    def good(self) -> bool:
        """Whether every turn was answered, at most one result differs, and the model was told."""
        return self.sound() and self.reasons.keys() == {"answered"} and self.equal >= self.calls - 1 and self.told


async def drive(conversation: Conversation, spoilt: Broken, world: World, path: Path, *, stream: bool) -> Found:
    """Drive one broken conversation on a record of its own. Turns that were not answered then are left out."""
    whole = desk(conversation, world)
    policy = msgspec.structs.replace(whole.policy, retry=gesta.Retry(empty=1))
    model = from_messages(spoilt.messages, name="broken", stream=stream)
    agent, found = address.bind(msgspec.structs.replace(whole, model=model, policy=policy)), Found()
    async with gesta.open(str(path), durability="normal") as record:
        outcomes = [
            await record.run(agent, turn.user.content or "", session=conversation.id, key=f"m{place}")
            for place, turn in enumerate(split(conversation).turns)
            if turn.replies
        ]
        entries = await record.read(outcomes[0].run)
        found.flaws = len(await record.verify())
    shown = json.loads(found.add(agent, entries, outcomes))["messages"]
    results_shown = [message["content"] for message in shown if message["role"] == "tool"]
    found.told = not spoilt.told or any(all(part in text for part in spoilt.told) for text in results_shown)
    recorded = [answer.content or "" for _, answer in conversation.answered()]
    found.equal = sum(map(equal_results, results(entries), recorded))
    return found


async def drive_all(folder: Path, *, stream: bool | None = True, every: bool = False) -> list[tuple[str, str, Found]]:
    """Drive the ten conversations, each broken in one way or two, or in every way: conversation, fault, counts.

    Args:
        stream: whether the replies come as streams; `None`: those of every second fault.
    """
    conversations, template = load_conversations(FILE)[:CONVERSATIONS], folder / "template.db"
    World.create(template, load_database("tau2")).close()
    found = []
    for place, conversation in enumerate(conversations):
        for number, spoilt in enumerate(broken(conversation)):
            if every or number % CONVERSATIONS == place:
                path = folder / f"{place}-{number}.gesta"
                with World.copy(template, folder / "world.db") as world:
                    streamed = number % 2 == 1 if stream is None else stream
                    check = await drive(conversation, spoilt, world, path, stream=streamed)
                found.append((conversation.id, spoilt.fault, check))
                path.unlink()
    return found


def main() -> int:
    """Print the table, a line per fault."""
    if not corpus_folder().is_dir():
        print(f"SKIPPED: no corpus at {corpus_folder()}; set GESTA_CORPUS to its folder")
        return 0
    columns = ["turns", "calls", "results", "equal", "histories", "valid", "same", "flaws", "derived", "told"]
    print("fault".ljust(30) + "".join(name.rjust(11) for name in columns) + "  reasons")
    with tempfile.TemporaryDirectory() as folder:
        found = anyio.run(lambda: drive_all(Path(folder), every="--all" in sys.argv))
    for fault in FAULTS:
        for conversation, of, check in found:
            if of == fault:
                cells = "".join(str(getattr(check, name)).rjust(11) for name in columns)
                print(f"{fault.ljust(30)}{cells}  {dict(check.reasons)} {conversation}")
    return 0 if all(check.good() for _, _, check in found) else 1


if __name__ == "__main__":
    sys.exit(main())
