"""Tool calls as text: replies are read line by line, and histories are written in the form that the model should use.

A *marker* such as `Action:` starts a part of a reply. It is at the beginning of a line. So a reader holds back the
beginning of a line while it may become a marker. A reply may arrive in pieces of any size. A reply in another form
becomes a call that cannot be read, and the model gets an error as its result. A segment is the stored entries from one
request to the next. A listener gets the text of a reply while it arrives.
"""

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, ClassVar

import msgspec

from gesta.entry import Entry
from gesta.formatters.tool_calls import NAME, State, ToolCalls
from gesta.kinds import RequestHeaderContent
from gesta.message import Call, Message
from gesta.model.request import Delta, Reply, ReplyCall
from gesta.prompt import observation_text

UNKNOWN = "unknown"
"""The name given to a call whose name cannot be read."""
FENCE = re.compile(r" {0,3}`{3,12}[ \t]{0,3}([a-zA-Z0-9_+-]{0,16})[ \t]{0,3}\r?\n")
FENCE_SO_FAR = re.compile(r" {0,3}(?:`{0,2}|`{3,12}[ \t]{0,3}[a-zA-Z0-9_+-]{0,16}[ \t]{0,3}\r?)")
LOOSE = re.ASCII | re.IGNORECASE
MARKER_SO_FAR = re.compile(r" {0,3}#{0,6} ?\*{0,2}(?P<word>[a-z_ ]{0,16}) ?\d{0,3} ?\*{0,2} ?:?\*?", LOOSE)
"""Matches any beginning of a marker. At most 40 characters of a line are needed to recognise a marker."""


def marker(words: Sequence[str]) -> re.Pattern[str]:
    """Return the pattern of a marker with one of these words.

    The pattern matches `Action:`, `action 2 :`, `## Action:`, `**Action:**` and `**Action**:`.
    """
    word = "|".join(word.replace(" ", "[ _]") for word in words)
    bold = r"\*\* ?:|:\*\*|:(?=[^*]|\*[^*])"
    return re.compile(rf" {{0,3}}(?:#{{1,6}} )?(\*\*)?(?P<word>{word})(?: ?\d{{1,3}})? ?(?(1)(?:{bold})|:)", LOOSE)


class Words:
    """A text that is shown to listeners while it arrives.

    Blanks and an opening code fence at the end are held back until more text follows. At the end of the text they are
    dropped.
    """

    def __init__(self) -> None:
        self._told: list[str] = []
        self._held: list[str] = []
        self._fenced = False

    @property
    def text(self) -> str:
        """All text that was released to listeners so far."""
        return "".join(self._told)

    @property
    def whole(self) -> str:
        """The text including the part that is held back, without blanks around it."""
        return "".join(self._told + self._held).strip()

    def add(self, text: str) -> str:
        """Add the next piece of text, and return what may be shown now."""
        body = text.rstrip()
        if not body:
            self._held.append(text)
            return ""
        fresh = "".join(self._held) + body
        self._held = [text[len(body) :]]
        self._told.append(fresh if self._told else fresh.lstrip())
        return self._told[-1]

    def fence(self, line: str) -> str:
        """Add a line that opens or closes a code fence, and return what may be shown now."""
        self._fenced = not self._fenced
        if not self._fenced:
            return self.add(line)
        self._held.append(line)
        return ""

    def end(self) -> bool:
        """Drop the text that is held back. Return whether the dropped text contained an opening code fence."""
        held, self._held, self._fenced = self._held, [], False
        return any("`" in text for text in held)


class LineReader(ABC):
    """Base class of readers for replies in which a marker at the beginning of a line starts a part."""

    PARTS: ClassVar[Mapping[str, str]]
    """For each marker, the name of the part that it starts. Every form has the parts `thought` and `answer`. An answer
    reaches to the end of the reply."""
    MARKER: ClassVar[re.Pattern[str]]

    def __init__(self) -> None:
        self.part = "start"
        self.cut: int | None = None
        """Index in the reply where a part begins that the model made up, such as a result; `None` if there is none."""
        self.before, self.thought, self.answer = Words(), Words(), Words()
        self._wrapped = False
        """Whether a fence around the parts is open."""
        self._line = ""
        """The beginning of a line that may still become a marker; empty if there is none."""
        self._inside = False
        """Whether the next piece continues a line whose beginning was already passed on."""
        self._marked = False
        """Whether only blanks have followed the last marker so far."""
        self._read = 0
        self._fresh: dict[str, list[str]] = {"thought": [], "text": []}

    def feed(self, text: str) -> list[Delta]:
        """Add the next piece of a reply, and return the text that may be sent to listeners now."""
        at = 0
        while at < len(text):
            free = self.part == "cut" or (self.part == "answer" and not self._wrapped)  # line ends mean nothing
            end = len(text) if free else text.find("\n", at) + 1 or len(text)
            if self._inside:
                self._pass_on(text[at:end])
            else:
                self._line += text[at:end]
                self._begin_line(whole=text[end - 1] == "\n")
            at = end
        fresh, self._fresh = self._fresh, {"thought": [], "text": []}
        thought, words = "".join(fresh["thought"]), "".join(fresh["text"])
        return [delta for delta in (Delta("thought", thought), Delta("text", words)) if delta.text]

    def close(self, reply: Reply) -> Reply:
        """Return a copy of the reply with its text, thought and calls in their own members."""
        if self._line:
            self._begin_line(whole=True)
        calls = self.calls(reply)
        text = self.before.whole if self.part == "start" else self.answer.text
        if self.part == "thought" and not (calls or reply.calls):
            calls = [ReplyCall(UNKNOWN, self.thought.whole)]
        thoughts = [thought for thought in (reply.thought, self.thought.text) if thought]
        return msgspec.structs.replace(
            reply,
            text="" if calls else text,
            thought="\n\n".join(thoughts) or None,
            calls=(*reply.calls, *calls),
        )

    # methods that each form defines

    @abstractmethod
    def calls(self, reply: Reply) -> list[ReplyCall]:
        """Return the calls that were read from the reply."""

    @abstractmethod
    def counts(self, part: str) -> bool:
        """Return whether a marker of `part`, at the current place of the reply, starts that part.

        If not, the marker is only text. The method is not called inside an answer.
        """

    def enter(self, part: str) -> None:
        """Start a part of the reply: the text that follows belongs to it."""
        if self.part == "start":
            self._wrapped |= self.before.end()
            self._tell("thought", self.thought.add(self.before.text))
        elif self.part == "thought":
            self._wrapped |= self.thought.end()
        self.part = part
        if part == "thought":
            self.thought.add("\n")

    def opens(self, line: str, *, whole: bool) -> int | None:
        """Return how many characters to skip at the beginning of a line: all of a line that is a code fence, else 0.

        Return `None` if more of the line is needed to know. A subclass may skip other signs too.

        Args:
            line: the line, or its beginning.
            whole: whether the line is complete.
        """
        if self.part not in ("start", "thought") and not (self.part == "answer" and self._wrapped):
            return 0
        if whole and FENCE.fullmatch(line):
            fenced = self._words().fence(line)
            self._tell(self.part, fenced)
            return len(line)
        return 0 if whole or FENCE_SO_FAR.fullmatch(line) is None else None

    def body(self, text: str) -> None:
        """Add text to the current part of the reply. Outside an answer, the text is at most one line."""
        self._tell(self.part, self._words().add(text))

    def stop(self) -> None:
        """Ignore the rest of the reply."""
        self.part, self.cut = "cut", self._read

    # how lines are read

    def _begin_line(self, *, whole: bool) -> None:
        line = self._line
        taken = self._head(line if not whole or line.endswith("\n") else f"{line}\n", whole=whole)
        if taken is None:
            return
        self._line = ""
        self._inside = not line.endswith("\n")
        self._read += min(taken, len(line))
        if taken < len(line):
            self._pass_on(line[taken:])

    def _pass_on(self, text: str) -> None:
        self._inside = not text.endswith("\n")
        self._read += len(text)
        if self._marked:
            text = text.lstrip(" \t")
            self._marked = not text
        if self.part != "cut":
            self.body(text)

    def _head(self, line: str, *, whole: bool) -> int | None:
        if self.part == "cut":
            return 0
        if self.part != "answer":
            found = self.MARKER.match(line)
            if found is not None:
                part = self.PARTS[found["word"].lower().replace("_", " ")]
                if not self.counts(part):
                    return 0
                self.enter(part)
                self._marked = True
                return found.end()
            if not whole and self._may_be_marker(line):
                return None
        return self.opens(line, whole=whole)

    def _may_be_marker(self, line: str) -> bool:
        found = MARKER_SO_FAR.fullmatch(line)
        word = "" if found is None else found["word"].lower().replace("_", " ").rstrip()
        return found is not None and any(known.startswith(word) for known in self.PARTS)

    def _words(self) -> Words:
        return {"start": self.before, "thought": self.thought}.get(self.part, self.answer)

    def _tell(self, part: str, text: str) -> None:
        """Collect text of a part for the listener: an answer as text, any other part as thought.

        Text before the first marker may belong to any part, so it is not collected.
        """
        if part != "start":
            self._fresh["text" if part == "answer" else "thought"].append(text)


class TextForm(ABC):
    """Base class of formatters that write calls in the model's text, and results in a user's message."""

    name: str
    prompt: str
    """Name of the file with the instructions that explain the form to the model."""

    @abstractmethod
    def reader(self) -> LineReader:
        """Return a new reader for one reply."""

    @abstractmethod
    def written(self, call: Call) -> str:
        """Return a call as the model should write it."""

    def listed(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """Return the list of tools as text for the model."""
        return "\n\n".join(map(described, tools))

    def dress(self, header: RequestHeaderContent) -> RequestHeaderContent:
        """Return a copy of a request header whose instructions also list the tools and explain how to write a call."""
        meta: dict[str, Any] = {**(header.meta or {}), "tools_in": "text"}
        if header.tools:
            rules = explained(self.prompt).replace("{tools}", self.listed(header.tools))
            meta["instructions"] = "\n\n".join(text for text in (meta.get("instructions"), rules) if text)
        return msgspec.structs.replace(header, meta=meta)

    def start(self) -> State:
        """Return the formatter's state before the first segment."""
        return State()

    def format(self, entries: Sequence[Entry], state: State) -> list[Message]:
        """Return the messages of one segment, with calls and results as text."""
        made: list[Message] = []
        results: list[Message] = []
        for message in ToolCalls().format(entries, state):
            if message.role == "tool":
                results.append(message)
                continue
            made += _observed(results)
            results = []
            made.append(self._said(message) if message.calls else message)
        return made + _observed(results)

    def _said(self, message: Message) -> Message:
        """Return a copy of a model's message in which text replaces the tool calls.

        If the message's text contains the same calls already, they are not written again.
        """
        reader = self.reader()
        reader.feed(message.text)
        names = [call.name if NAME.fullmatch(call.name) else UNKNOWN for call in reader.close(Reply()).calls]
        said = message.text[: reader.cut].rstrip()
        if names == [call.name for call in message.calls]:
            return Message(role="assistant", text=said, sources=message.sources)
        thought = said if not said or reader.part != "start" else f"Thought: {said}"
        text = "\n".join([*([thought] if thought else []), *map(self.written, message.calls)])
        return Message(role="assistant", text=text, sources=message.sources)


@functools.cache
def explained(prompt: str) -> str:
    """Return the instructions that tell the model how to write calls.

    Args:
        prompt: name of the file with the instructions.
    """
    return (files("gesta.formatters") / "prompts" / prompt).read_text(encoding="utf-8").strip()


def _observed(results: Sequence[Message]) -> list[Message]:
    """Return one message with the results of all calls of a reply; an empty list if there are no results.

    If there are several results, each names its tool.
    """
    if not results:
        return []
    texts = [f"Observation: {result.text}" for result in results]
    if len(results) > 1:
        texts = [f"Observation {place}: ({result.name}) {result.text}" for place, result in enumerate(results, 1)]
    sources, names = tuple(seq for one in results for seq in one.sources), {one.name for one in results}
    name = names.pop() if len(names) == 1 else None
    return [Message(role="user", text="\n".join(texts), name=name, observes=True, sources=sources)]


def described(tool: Mapping[str, Any]) -> str:
    """Return the name, description and argument schema of a tool, as text for the model."""
    head = f"{tool.get('name')}: {tool.get('description') or ''}".rstrip(": ")
    return f"{head}\nArguments: {observation_text(tool.get('args_schema') or {})}"
