"""KodeAgent's messages, plan and observer's response, with its names, fields and validation rules.

An instance that breaks a rule raises ValueError, as in KodeAgent, whose classes are pydantic models. Formatter hooks
receive every message of a run as a `ChatMessage`, so `ChatMessage` also has the fields of all other message classes.
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Self, get_args

import msgspec
from msgspec import Struct

from gesta.compat.kodeagent.kutils import args_text, object_of, text_of
from gesta.errors import MissingExtra
from gesta.formatters.codeact_text import CODE_ACT_PSEUDO_TOOL_NAME
from gesta.kinds import Part, SystemContent, ToolCallContent, ToolResultContent, UserContent
from gesta.message import Role

try:
    from gesta.formatters.repair import repair
except ModuleNotFoundError as missing:
    LACKING: ModuleNotFoundError | None = missing
else:
    LACKING = None

TEXTS = ("thought", "action", "args", "code", "final_answer")
"""Fields that are texts."""
FINISH = "FINISH"
"""The value of `action` in a message that contains the final answer."""


class Model(Struct, kw_only=True):
    """Base class of messages, plans and observer's responses, with the methods of pydantic models."""

    def model_dump(self) -> dict[str, Any]:
        """Return the fields as a dict of plain Python values."""
        found: dict[str, Any] = msgspec.to_builtins({name: getattr(self, name) for name in self._dumped()})
        return found

    def _dumped(self) -> Sequence[str]:
        return self.__struct_fields__

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Return the fields as JSON text."""
        return json.dumps(self.model_dump(), ensure_ascii=False, indent=indent)

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """Return an instance with the fields of a dict or object. Raises ValueError if it breaks a rule."""
        return msgspec.convert(obj, cls, from_attributes=True)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes) -> Self:
        """Return an instance with the fields of a JSON object. Raises ValueError if it breaks a rule."""
        return msgspec.json.decode(json_data, type=cls)


class PlanStep(Model, kw_only=True):
    """One step of a plan."""

    description: str
    is_done: bool = False


class AgentPlan(Model, kw_only=True):
    """A plan: a list of steps, each either done or not."""

    steps: list[PlanStep]


class ObserverResponse(Model, kw_only=True):
    """An observer's judgement of an agent's work, with a correction for the agent if it needs one."""

    is_progressing: bool
    is_in_loop: bool
    reasoning: str
    correction_message: str | None = None


class ChatMessage(Model, kw_only=True):
    """One message of a run, as formatter hooks receive it."""

    NEEDED: ClassVar[tuple[str, ...]] = ()
    """Fields that must be a text."""
    OWN: ClassVar[tuple[str, ...]] = ("role", "content", "files")
    """Fields of KodeAgent's own class. `model_dump` leaves out any other field that is empty."""

    role: Role
    content: Any = None
    thought: str | None = None
    """The text that the model wrote before it acted."""
    action: str | None = None
    """Name of the tool that is called; in a tool message, name of the tool that returned the result."""
    args: str | None = None
    """The arguments as the text of a JSON object."""
    code: str | None = None
    final_answer: str | None = None
    """The final answer, which may be empty; `None` if the message contains no answer."""
    files: Sequence[str | Part] | None = None
    task_successful: bool | None = None
    tool_call_id: str | None = None
    """Id of the tool call. It is unique in the run, and every provider accepts it."""
    own_id: str | None = None
    """The provider's id of the tool call, if it differs from `tool_call_id`."""
    state: dict[str, Any] | None = None
    """The formatter's state, which hooks may change; `None` if the message is not being formatted."""

    def __post_init__(self) -> None:
        """Check the types of the fields. Raises ValueError."""
        texts = {name: getattr(self, name) for name in TEXTS}
        sound = {
            name: isinstance(value, str) or (value is None and name not in self.NEEDED) for name, value in texts.items()
        }
        files, done = self.files, self.task_successful
        sound["role"] = self.role in get_args(Role)
        listed = isinstance(files, Sequence) and not isinstance(files, str)
        sound["files"] = files is None or (listed and all(isinstance(each, str | Part) for each in files))
        sound["task_successful"] = isinstance(done, bool) or (done is None and not self.NEEDED)
        _check({f"{name} of {type(self).__name__} is {getattr(self, name)!r:.100}": ok for name, ok in sound.items()})

    def _dumped(self) -> list[str]:
        more = [name for name in self.__struct_fields__ if name not in (*self.OWN, "own_id", "state")]
        return [name for name in self.__struct_fields__ if name in self.OWN or (name in more and getattr(self, name))]

    def __str__(self) -> str:
        return "" if self.content is None else str(self.content)


class ReActChatMessage(ChatMessage, kw_only=True):
    """A thought with either an action and its arguments, or the final answer."""

    NEEDED = ("thought", "action")
    OWN = ("role", "files", "thought", "action", "args", "final_answer", "task_successful")

    role: Role = "assistant"
    thought: str
    action: str
    task_successful: bool = False

    def __post_init__(self) -> None:
        ChatMessage.__post_init__(self)
        self.args = _object(self.args)
        if self.action != FINISH and self.final_answer:
            self.final_answer = None
            self.task_successful = False
        done, said = self.action == FINISH, self.final_answer is not None
        _check(
            {
                f"final_answer must be given when action is {FINISH!r}": not done or said,
                f"args must be None when action is {FINISH!r}": not done or self.args is None,
                f"action must be {FINISH!r} when final_answer is given": done or not said,
                "task_successful must be False while a tool is called": done or not self.task_successful,
                f"args must be given when action is {self.action!r}": done or self.args is not None,
            }
        )

    @property
    def is_final(self) -> bool:
        """Whether the message contains the final answer."""
        return self.action == FINISH and self.final_answer is not None

    def __str__(self) -> str:
        said = {"Thought": self.thought, "Action": self.action, "Args": self.args}
        return str(self.final_answer) if self.is_final else _lines(said)


class CodeActChatMessage(ChatMessage, kw_only=True):
    """A thought with either code or the final answer."""

    NEEDED = ("thought",)
    OWN = ("role", "files", "thought", "code", "final_answer", "task_successful")

    role: Role = "assistant"
    thought: str
    task_successful: bool = False

    def __post_init__(self) -> None:
        ChatMessage.__post_init__(self)
        coded = bool(self.code and self.code.strip())
        if coded and self.final_answer:
            self.final_answer = None
            self.task_successful = False
        _check(
            {
                "either code or final_answer must be given": coded != (self.final_answer is not None),
                "task_successful must be False while code is run": not (coded and self.task_successful),
            }
        )

    @property
    def is_final(self) -> bool:
        """Whether the message contains the final answer."""
        return self.final_answer is not None

    def __str__(self) -> str:
        code = f"\n```python\n{self.code}\n```" if self.code else None
        return str(self.final_answer) if self.is_final else _lines({"Thought": self.thought, "Code": code})


def message_content(msg: ChatMessage, call: int | None) -> UserContent | SystemContent | ToolResultContent:
    """Return the content of the entry for a message that is not the assistant's. `call` is the seq of its call."""
    if msg.role == "tool":
        return ToolResultContent(tool_result=msg.content, call=call, tool_call_id=msg.tool_call_id)
    text = text_of(msg.content)
    if msg.role == "system":
        return SystemContent(value=text)
    parts = [file if isinstance(file, Part) else Part(type="text", text=file) for file in msg.files or ()]
    return UserContent(value=text, parts=parts or None)


def call_content(msg: ChatMessage) -> ToolCallContent:
    """Return the content of the entry for the tool call of a message."""
    if msg.code is not None and not msg.action:
        return ToolCallContent(
            tool_name=CODE_ACT_PSEUDO_TOOL_NAME, tool_args={"code": msg.code}, tool_call_id=msg.tool_call_id
        )
    made = ToolCallContent(
        tool_name=msg.action or "", tool_args=object_of(msg.args) or {}, tool_call_id=msg.tool_call_id
    )
    if msg.args is None or object_of(msg.args) is not None:
        return made
    wrong = {"raw_args": msg.args, "error": f"The arguments of {msg.action!r} are not a JSON object."}
    return msgspec.structs.replace(made, status="error", meta=wrong)


def _check(rules: dict[str, bool]) -> None:
    broken = next((rule for rule, holds in rules.items() if not holds), None)
    if broken is not None:
        raise ValueError(broken)


def _lines(said: dict[str, str | None]) -> str:
    return "\n".join(f"{name}: {text}" for name, text in said.items() if text).replace(": \n", ":\n")


def _repaired(args: str) -> dict[str, Any] | None:
    """Return the object that a malformed JSON text means; `None` if that is ambiguous.

    Raises MissingExtra if the package `json-repair` is not installed.
    """
    if LACKING is not None:
        raise MissingExtra("Reading arguments that are not JSON", "json-repair", "repair") from LACKING
    return repair(args)


def _object(args: str | None) -> str | None:
    """Return arguments as the text of a JSON object, repaired if malformed; `None` for no arguments.

    Raises ValueError if the text cannot be repaired.
    """
    if args is None or not args.strip():
        return None
    inner = args[args.find("{") : args.rfind("}") + 1]  # ignore a code fence or words around the object
    found = object_of(args)
    if found is None:
        found = object_of(inner)
    if found is None and inner:
        found = _repaired(args)
    if found is None:
        raise ValueError(f"args must be a JSON object, found {args:.100}")
    try:
        return json.dumps(found, allow_nan=False)
    except ValueError:
        return args_text(found)
