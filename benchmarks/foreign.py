"""Runs recorded conversations of other agents, with many models, through Gesta's own loop: none may stop it.

Run `python -m benchmarks.foreign [all]`. The model repeats what was recorded. The tools return the recorded results, in
the order of the calls with the same name and arguments. The table has a line for each file. The exit code is 1 if an
exception was raised, a history was refused, a call had not exactly one result, or a result differs from the recorded
one. The files are those of AgentDojo (8,062 runs of 11 models, some without call ids, some with repeated ids or 26
calls at once) and those of tau2 without ids; with `all` those of mini-swe-agent, too.
"""

import gzip
import importlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct, field

import gesta
from benchmarks.retail.broken import Check
from benchmarks.retail.corpus import corpus_folder
from benchmarks.retail.drive import results
from gesta import address
from gesta.codec.rows import canonical
from gesta.kinds import ToolCallContent
from gesta.models.replay import from_messages

Message = dict[str, Any]

AGENTDOJO = tuple(
    f"agentdojo/runs/{name}.jsonl.zst"
    for name in (
        "Meta-SecAlign-70B",
        "claude-3-7-sonnet-20250219",
        "claude-3-haiku-20240307",
        "claude-3-opus-20240229",
        "command-r",
        "gemini-1.5-flash-001",
        "gemini-2.0-flash-001",
        "gpt-3.5-turbo-0125",
        "gpt-4o-2024-05-13",
        "gpt-4o-2024-05-13-tool_filter",
        "meta-llama_Llama-3-70b-chat-hf",
    )
)
MISSING_IDS = "tau2-bench/results/telecom-gpt-4.1-tool-prompt-missing-ids.json.gz"
MINI_SWE = tuple(
    f"mini-swe-agent/{name}.jsonl.zst"
    for name in ("deepseek-chat-dev", "deepseek-chat-test-part1", "deepseek-reasoner-dev")
)


class Conversation(Struct, frozen=True):
    """A recorded conversation as Chat Completions messages.

    Results follow their calls in order, whatever their ids are.
    """

    id: str
    messages: list[Message]
    tools: tuple[str, ...]
    """Names of the tools that the agent had. The model may have called others."""

    def texts(self, role: str) -> list[str]:
        """Return the texts of the messages of a role."""
        return [message["content"] for message in self.messages if message["role"] == role]

    def answered(self) -> list[tuple[Message, str | None]]:
        """Return every call with its result as text; the result is `None` if the recording ended before it."""
        found: list[tuple[Message, str | None]] = []
        open_from = 0
        for message in self.messages:
            if message["role"] == "tool":
                found[open_from] = found[open_from][0], message["content"]
                open_from += 1
            else:
                open_from = len(found)
                found += [(call, None) for call in message.get("tool_calls") or ()]
        return found


class Tally(Check):
    """Counts over the conversations of one file."""

    file: str = ""
    conversations: int = 0
    compared: int = 0
    """Number of calls that ran and have a recorded result. `equal` of them returned the same result here."""
    equal: int = 0
    refused: int = 0
    """Number of calls that Gesta answered itself, because the tool is unknown or the arguments do not fit."""
    left: int = 0
    """Number of recorded messages of the model that were not asked for, because the turn had ended before."""
    raised: int = 0
    seconds: float = 0.0
    expected: Counter[str] = field(default_factory=Counter)
    """How often each reason is expected as the end of a turn.

    A turn ends with each recorded message of the model that has no calls; when there is none left, it fails.
    """

    def good(self) -> bool:
        """Return whether the counts are as they must be."""
        return self.sound() and not self.raised and self.equal == self.compared and self.reasons == self.expected


# ----------------------------------------------------------------------------------------------------------- reading
def unpacked(path: Path) -> bytes | None:
    """Return the decompressed data of a zstd file; `None` if neither Python nor a program here can read zstd."""
    for name in ("compression.zstd", "zstandard"):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        with module.open(path, "rb") as stream:
            data: bytes = stream.read()
            return data
    program = shutil.which("zstd")
    if program is None:
        return None
    return subprocess.run([program, "-dcq", "--long=27", str(path)], check=True, capture_output=True).stdout


def load(file: str) -> Iterator[Conversation] | None:
    """Return the conversations of a file; `None` if nothing here reads zstd."""
    if file == MISSING_IDS:
        return _tau2(json.loads(gzip.decompress((corpus_folder() / file).read_bytes())))
    data = unpacked(corpus_folder() / file)
    if data is None:
        return None
    documents = (json.loads(line) for line in data.splitlines() if line.strip())
    return map(_agentdojo if file in AGENTDOJO else _mini_swe, documents)


def suite_tools(suite: str) -> tuple[str, ...]:
    """Return the names of the tools of an AgentDojo suite."""
    tools = json.loads((corpus_folder() / f"agentdojo/env/{suite}/tools.json").read_bytes())
    return tuple(tool["function"]["name"] for tool in tools)


def _agentdojo(document: dict[str, Any]) -> Conversation:
    """Return one run of AgentDojo as a conversation. There, a failed call has its text in `error`."""
    messages = [
        {
            "role": it["role"],
            "content": it.get("error") or _text(it["content"]),
            "tool_calls": [_call(one, one["function"], one["args"]) for one in it.get("tool_calls") or ()],
        }
        for it in document["data"]["messages"]
    ]
    return Conversation(document["path"], messages, suite_tools(document["data"]["suite_name"]))


def _mini_swe(document: dict[str, Any]) -> Conversation:
    """Return one trajectory of mini-swe-agent as a conversation. Its only tool is `bash`."""
    kept = ("role", "content", "tool_calls", "reasoning_content")
    messages = [{name: it.get(name) for name in kept} for it in document["data"]["messages"]]
    return Conversation(document["path"], messages, ("bash",))


def _tau2(data: dict[str, Any]) -> Iterator[Conversation]:
    """Yield simulations of tau2 in which no user spoke, as conversations whose user message is the ticket."""
    tickets = {task["id"]: task["ticket"] for task in data["tasks"]}
    for run in data["simulations"]:
        messages: list[Message] = [{"role": "user", "content": tickets[run["task_id"]]}]
        for it in run["messages"]:
            calls = [_call(one, one["name"], one["arguments"]) for one in it.get("tool_calls") or ()]
            messages.append({"role": it["role"], "content": it["content"], "tool_calls": calls})
        names = {call["function"]["name"] for it in messages for call in it.get("tool_calls") or ()}
        yield Conversation(run["id"], messages, tuple(sorted(names)))


def _call(call: dict[str, Any], name: str, args: Any) -> Message:
    """Return a call with its arguments as text. Its id stays as it is, even if it is null, empty or missing."""
    kept = {"id": call["id"]} if "id" in call else {}
    return kept | {"type": "function", "function": {"name": name, "arguments": json.dumps(args)}}


def _text(content: Any) -> str:
    """Return a message's content as one text, joining its parts if it is a list."""
    return "".join(part["content"] for part in content) if isinstance(content, list) else content or ""


# ----------------------------------------------------------------------------------------------------------- driving
class Replies:
    """The recorded results by tool and arguments. Each is used once, in order."""

    def __init__(self, conversation: Conversation) -> None:
        self._left: dict[tuple[str, bytes], deque[str | None]] = defaultdict(deque)
        for call, result in conversation.answered():
            args = json.loads(call["function"]["arguments"])
            self._left[call["function"]["name"], canonical(args)].append(result)

    def tool(self, name: str) -> gesta.Tool:
        """Return a tool that accepts any arguments and returns the next recorded result."""

        async def answer(**args: Any) -> str:
            result = self._left[name, canonical(args)].popleft()
            if result is None:
                raise LookupError("no result is on record")
            return result

        return gesta.Tool(name=name, args_schema={"type": "object"}, function=answer, effect="pure", parameters=None)


def agent(conversation: Conversation, *, stream: bool = False) -> gesta.Agent:
    """Return the agent of one conversation.

    An empty reply ends its turn, because the recorded model was not asked again.
    """
    answers = Replies(conversation)
    return address.bind(
        gesta.Agent(
            "foreign",
            model=from_messages(conversation.messages, name="recorded", stream=stream),
            instructions="\n".join(conversation.texts("system")),
            tools=[answers.tool(name) for name in conversation.tools],
            policy=gesta.Policy(retry=gesta.Retry(empty=0), limits=gesta.Limits(requests=None, calls=None)),
        )
    )


async def converse(record: gesta.Record, conversation: Conversation, tally: Tally, *, stream: bool) -> None:
    """Send every user message under a key of its own, and add the results to the counts."""
    tally.conversations += 1
    acting, said = agent(conversation, stream=stream), conversation.texts("user")
    if not said:
        return
    outcomes = [
        await record.run(acting, text, session=conversation.id, key=f"m{place}") for place, text in enumerate(said)
    ]
    entries = await record.read(outcomes[0].run)
    tally.add(acting, entries, outcomes)
    ends = [it["content"] for it in conversation.messages if it["role"] == "assistant" and not it["tool_calls"]]
    tally.expected.update("answered" if text and text.strip() else "failed:EmptyReply" for text in ends)
    tally.expected["failed:ScriptExhausted"] += len(said) - len(ends)
    tally.left += len(conversation.texts("assistant")) - sum(outcome.requests for outcome in outcomes)
    good = [entry.content.status == "success" for entry in entries if isinstance(entry.content, ToolCallContent)]
    tally.refused += good.count(False)
    for (call, recorded), result, ran in zip(conversation.answered(), results(entries), good, strict=False):
        if ran and recorded is not None:
            tally.compared += 1
            tally.equal += result == recorded
            if result != recorded:
                print(f"{conversation.id}: {call}\n  recorded {recorded!r}\n  now      {result!r}")


async def drive(file: str, *, sample: int | None = None, stream: bool = False) -> Tally | None:
    """Run the conversations of a file, or the first `sample` of them, on one record.

    Return `None` if it cannot be read.
    """
    conversations = load(file)
    if conversations is None:
        return None
    tally, start = Tally(file=file.rsplit("/", 1)[-1].partition(".json")[0]), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        async with gesta.open(str(Path(folder) / "foreign.gesta"), durability="normal") as record:
            for conversation in islice(conversations, sample):
                try:
                    await converse(record, conversation, tally, stream=stream)
                except Exception:  # noqa: BLE001 - a conversation that stops the loop is the failure to find
                    tally.raised += 1
                    print(f"RAISED {conversation.id}: {traceback.format_exc(limit=-3) if tally.raised < 4 else '...'}")
            tally.flaws = len(await record.verify())
    tally.seconds = time.perf_counter() - start
    return tally


COLUMNS = ("conversations", "turns", "calls", "results", "compared", "equal", "refused", "histories", "valid", "same")
MORE = ("kept", "derived", "flaws", "left", "raised", "seconds")


def row(name: str, cells: Sequence[object]) -> str:
    """Return one line of the table."""
    shown = (f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in cells)
    columns = zip(shown, (*COLUMNS, *MORE), strict=True)
    return name.ljust(40) + "".join(cell.rjust(max(6, len(column)) + 2) for cell, column in columns)


def main() -> int:
    """Print the table with a line for each file. Return 0 if all counts are as they must be."""
    if not corpus_folder().is_dir():
        print(f"SKIPPED: no corpus at {corpus_folder()}; set GESTA_CORPUS to its folder")
        return 0
    print(row("file", (*COLUMNS, *MORE)) + "  reasons")
    good = True
    for file in (*AGENTDOJO, MISSING_IDS, *(MINI_SWE if "all" in sys.argv else ())):
        tally = anyio.run(drive, file)
        if tally is None:
            print(f"!!! SKIPPED {file}: nothing here reads zstd; install the zstandard package or the zstd program")
            continue
        print(row(tally.file, [getattr(tally, name) for name in (*COLUMNS, *MORE)]), dict(tally.reasons), flush=True)
        good = good and tally.good()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
