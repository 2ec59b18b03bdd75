"""Reads the retail databases and the recorded conversations from the corpus folder, into one neutral form."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from benchmarks.retail.world import Database

Source = Literal["tau-bench", "tau2-bench", "few-shot"]
Dialect = Literal["tau", "tau2"]
Role = Literal["system", "user", "assistant", "tool"]

INJECTED = "Error: 503 Service Unavailable"
"""The result that the author of the tau-bench recording put in place of real ones; the call did not run."""
DIALECTS: dict[Source, Dialect] = {"tau-bench": "tau", "tau2-bench": "tau2", "few-shot": "tau"}
FILES: dict[str, Source] = {
    "tau-bench/trajectories/retail-grok-3-with-injected-503.json.gz": "tau-bench",
    "tau2-bench/results/retail-gpt-4.1.json.gz": "tau2-bench",
    "tau2-bench/results/retail-toolorchestra-gpt-5.json.gz": "tau2-bench",
    "tau2-bench/results/retail-gpt-4.1-mini.json.gz": "tau2-bench",
    "activegraph-tau2/20260601-041151-558787-retail/results.json.gz": "tau2-bench",
}
"""The recordings, by path in the corpus: 115 conversations of tau-bench, 40 + 114 + 1 + 1 of tau2-bench."""
ORDER_OPTIONS = (
    "cancel_reason",
    "exchange_items",
    "exchange_new_items",
    "exchange_payment_method_id",
    "exchange_price_difference",
    "return_items",
    "return_payment_method_id",
)
"""Fields that every order of tau2 has, null until set; those of tau-bench get them when set."""


class RecordedCall(Struct, frozen=True):
    """A tool call as recorded: its id (unique in its conversation), the tool's name and the arguments by name."""

    id: str
    name: str
    args: dict[str, Any]


class Message(Struct, frozen=True):
    """One message of a conversation.

    `calls` is filled for assistants only. `call_id`, `error` and `injected` are of tool messages only: the call
    answered, whether the result is a failure, and whether the failure was put there by the recording's author.
    """

    role: Role
    content: str | None
    calls: tuple[RecordedCall, ...] = ()
    call_id: str | None = None
    error: bool = False
    injected: bool = False


class Conversation(Struct, frozen=True):
    """One recorded conversation between a user and an agent with tools.

    `id` is `<file stem>/<task id>`. `db_match` is the recorded verdict whether the database ended as it would by the
    expected actions; None where none was recorded (37 of tau-bench's, which were judged by what the agent said).
    """

    id: str
    source: Source
    file: str
    messages: tuple[Message, ...]
    db_match: bool | None
    expected_actions: tuple[RecordedCall, ...]

    @property
    def dialect(self) -> Dialect:
        """Which tools the agent had."""
        return DIALECTS[self.source]

    def answered(self) -> Iterator[tuple[RecordedCall, Message]]:
        """Yield every call with the tool message that answers it, in the order of the calls."""
        answers = {message.call_id: message for message in self.messages if message.role == "tool"}
        for message in self.messages:
            for call in message.calls:
                yield call, answers[call.id]


class Turn(Struct, frozen=True):
    """A user message and all that follows it up to the next one (empty if the conversation ends with it)."""

    user: Message
    replies: tuple[Message, ...]


class Split(Struct, frozen=True):
    """A conversation in turns: its system messages, what the assistant said before any user did, and the turns."""

    system: tuple[Message, ...]
    unprompted: tuple[Message, ...]
    turns: tuple[Turn, ...]


def split(conversation: Conversation) -> Split:
    """Split a conversation into turns, each beginning with a user message."""
    system = tuple(message for message in conversation.messages if message.role == "system")
    rest = [message for message in conversation.messages if message.role != "system"]
    starts = [i for i, message in enumerate(rest) if message.role == "user"]
    ends = [*starts[1:], len(rest)]
    turns = tuple(Turn(rest[i], tuple(rest[i + 1 : j])) for i, j in zip(starts, ends, strict=True))
    return Split(system, tuple(rest[: starts[0]] if starts else rest), turns)


def corpus_folder() -> Path:
    """Return the corpus folder: `GESTA_CORPUS`, else `shared/corpus` beside the repository."""
    given = os.environ.get("GESTA_CORPUS")
    folder = Path(given) if given else Path(__file__).resolve().parents[3] / "shared" / "corpus"
    if not folder.is_dir():
        raise FileNotFoundError(f"No corpus at {folder}; set GESTA_CORPUS to its folder.")
    return folder


def load_database(dialect: Dialect) -> Database:
    """Load the users (500), orders (1000) and products (50) that conversations of a dialect start from.

    The two dialects hold the same shop but in different shape: keys in another order, users of tau2 with their id,
    gift card balances of tau2 as floats, orders of tau2 with all optional fields.
    """
    if dialect == "tau":
        return {table: _read(f"tau-bench/retail/{table}.json.gz") for table in ("users", "orders", "products")}
    database: Database = _read("tau2-bench/retail/db.json.gz")
    for order in database["orders"].values():
        order.update({name: order.get(name) for name in ORDER_OPTIONS})
    return database


def load_conversations(file: str) -> tuple[Conversation, ...]:
    """Load all conversations of one of `FILES`, in recorded order."""
    data = _read(file)
    if FILES[file] == "tau-bench":
        return tuple(_tau(file, run) for run in data)
    if any(task["initial_state"] for task in data["tasks"]):
        raise ValueError(f"A task of {file} has an initial state; the retail tasks are known to have none.")
    return tuple(_tau2(file, run) for run in data["simulations"])


def _read(file: str) -> Any:
    """Parse one gzipped JSON file of the corpus."""
    with gzip.open(corpus_folder() / file, "rb") as stream:
        return json.load(stream)


def _conversation_id(file: str, task_id: object) -> str:
    """Return an id that is unique over all files, since each has one run per task."""
    return f"{Path(file).name.removesuffix('.json.gz')}/{task_id}"


def _tau(file: str, run: dict[str, Any]) -> Conversation:
    """Convert one run of tau-bench."""
    task = run["info"]["task"]
    verdict = run["info"]["reward_info"]["info"]
    actions = enumerate(task["actions"])
    return Conversation(
        id=_conversation_id(file, run["task_id"]),
        source="tau-bench",
        file=file,
        messages=tuple(_tau_message(message) for message in run["traj"]),
        db_match=bool(verdict["r_actions"]) if "r_actions" in verdict else None,
        expected_actions=tuple(RecordedCall(str(i), action["name"], action["kwargs"]) for i, action in actions),
    )


def _tau_message(message: dict[str, Any]) -> Message:
    """Convert one message in OpenAI's chat form, with arguments as JSON text."""
    role, content = message["role"], message["content"]
    if role == "tool":
        failed = content.startswith("Error: ")
        return Message(role, content, call_id=message["tool_call_id"], error=failed, injected=content == INJECTED)
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
    recorded = (RecordedCall(id_, function["name"], json.loads(function["arguments"])) for id_, function in calls)
    return Message(role, content, calls=tuple(recorded))


def _tau2(file: str, run: dict[str, Any]) -> Conversation:
    """Convert one simulation of tau2-bench.

    The expected actions are taken from its verdict, which names those it was judged by. The task ids of the
    ToolOrchestra file cannot serve: there they number the runs, and name another task than the run's own in 113 of 114.
    """
    actions = [check["action"] for check in run["reward_info"]["action_checks"] or ()]
    return Conversation(
        id=_conversation_id(file, run["task_id"]),
        source="tau2-bench",
        file=file,
        messages=tuple(_tau2_message(message) for message in run["messages"]),
        db_match=run["reward_info"]["db_check"]["db_match"],
        expected_actions=tuple(RecordedCall(it["action_id"], it["name"], it["arguments"]) for it in actions),
    )


def _tau2_message(message: dict[str, Any]) -> Message:
    """Convert one message of tau2-bench; one recording leaves out `error`, and is told by the text."""
    role, content = message["role"], message["content"]
    if role == "tool":
        error = message.get("error")
        failed = content.startswith("Error: ") if error is None else error
        return Message(role, content, call_id=message["id"], error=failed)
    calls = message.get("tool_calls") or ()
    if any(call["requestor"] != "assistant" for call in calls):
        raise ValueError("A user called a tool; in retail only the agent has tools.")
    return Message(role, content, calls=tuple(RecordedCall(it["id"], it["name"], it["arguments"]) for it in calls))
