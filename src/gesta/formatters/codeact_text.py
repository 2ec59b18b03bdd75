"""CodeAct as text: a reply is a thought with one block of code, or with a final answer. The code becomes a tool call.

Code is a fenced block marked as Python, a fenced block without a mark after a thought, or the text between `<code>` and
`</code>`. Only the first block is run, because the model wrote the rest before it saw the result. Code after `Final
Answer:` is not run. A *marker* such as `Thought:` starts a part of the reply.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gesta.formatters.text_form import FENCE, LineReader, TextForm, described, marker
from gesta.message import Call
from gesta.model.request import Reply, ReplyCall
from gesta.prompt import observation_text

CODE_ACT_PSEUDO_TOOL_NAME = "code_execution"
"""Name of the tool that runs a block of code."""
PYTHON = frozenset({"python", "python3", "py", "tool_code"})
TAG, TAG_SO_FAR = re.compile(" {0,3}<code>"), re.compile(" {0,3}(?:<(?:c(?:o(?:d(?:e)?)?)?)?)?")
END_TAG = re.compile(r"</code>[ \t]*\r?\n?$")


class CodeActReader(LineReader):
    """Parses a reply that is a thought and a block of code, or a final answer."""

    PARTS: ClassVar[dict[str, str]] = {"thought": "thought", "code": "thought", "final answer": "answer"}
    MARKER = marker(tuple(PARTS))

    def __init__(self) -> None:
        super().__init__()
        self._code: list[str] | None = None
        self._row: list[str] = []
        """The pieces of the last line of code in the reply so far, which is not complete yet."""
        self._end = END_TAG
        self._quoted = False
        """Whether a fenced block is open that is not run as code."""

    def counts(self, part: str) -> bool:
        """Return whether a marker starts a part at this place of the reply. Inside code, a marker is only text."""
        return self.part != "code"

    def enter(self, part: str) -> None:
        """Start a part of the reply, such as the thought or the answer: the text that follows belongs to it."""
        super().enter(part)
        self._quoted = False

    def opens(self, line: str, *, whole: bool) -> int | None:
        """Return the length of the fence or tag if a line begins a block of code; the text after it is the code.

        Return 0 for any other line, and `None` if more of the line is needed to know.

        Args:
            line: the line, or its beginning.
            whole: whether the line is complete.
        """
        if self.part not in ("start", "thought"):
            return super().opens(line, whole=whole)
        if (tag := TAG.match(line)) is not None:
            self._begin_code(END_TAG)
            return tag.end()
        if not whole and TAG_SO_FAR.fullmatch(line):
            return None
        fence = FENCE.fullmatch(line) if whole else None
        if fence is None:
            return super().opens(line, whole=whole)
        label = fence[1].lower()
        bare = self.part == "thought" and not label and not self._quoted
        if bare or label in PYTHON:
            self._begin_code(re.compile(rf" {{0,3}}`{{{line.count('`')},}}[ \t]*\r?\n?$"))
            return len(line)
        self._quoted = bool(label) or not self._quoted
        return super().opens(line, whole=True)

    def body(self, text: str) -> None:
        """Add text to the current part of the reply."""
        if self.part != "code":
            super().body(text)
            return
        self._row.append(text)
        if text.endswith("\n"):
            self._end_row()

    def calls(self, reply: Reply) -> list[ReplyCall]:
        """Return the call of the tool that runs the code; an empty list if the reply has no code."""
        if self.part == "code" and self._row:
            self._end_row()
        if self._code is None:
            return []
        code = "".join(self._code).strip("\r\n")
        code = code if "\n" in code else code.strip()
        short = self.part == "code" and reply.cut
        args = code if short else json.dumps({"code": code})
        return [ReplyCall(CODE_ACT_PSEUDO_TOOL_NAME, args)]

    def _begin_code(self, end: re.Pattern[str]) -> None:
        super().enter("code")
        self._code, self._end = [], end

    def _end_row(self) -> None:
        row, self._row = "".join(self._row), []
        found = self._end.search(row) if self._end is END_TAG else self._end.match(row)
        assert self._code is not None
        self._code.append(row if found is None else row[: found.start()])
        if found is not None:
            self.stop()


class CodeActText(TextForm):
    """The formatter for CodeAct as text: it writes tool calls as code, and reads code in a reply as a tool call."""

    name = "codeact-text/1"
    prompt = "codeact.txt"

    def reader(self) -> CodeActReader:
        """Return a new reader for one reply."""
        return CodeActReader()

    def written(self, call: Call) -> str:
        """Return a call as a block of code.

        For a call of the tool that runs code, the block contains that code. For any other tool, it contains a function
        call.
        """
        code = call.args.get("code") if call.name == CODE_ACT_PSEUDO_TOOL_NAME else None
        code = code if isinstance(code, str) else code_of(call.name, call.args)
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", code)), default=0))
        return f"{fence}python\n{code}\n{fence}"

    def listed(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """Return a text for the model: the description of the tool that runs code, then other tools as functions."""
        runs = [str(tool.get("description") or "") for tool in tools if tool.get("name") == CODE_ACT_PSEUDO_TOOL_NAME]
        functions = [described(tool) for tool in tools if tool.get("name") != CODE_ACT_PSEUDO_TOOL_NAME]
        heading = ["The code may call these functions:"] if functions else []
        return "\n\n".join(text for text in (*runs, *heading, *functions) if text)


def code_of(name: str, args: Mapping[str, Any]) -> str:
    """Return a tool call as Python code, such as `look(x=1)`."""
    try:
        if all(str(key).isidentifier() for key in args):
            return f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})"
        return f"{name}(**{dict(args)!r})"
    except (ValueError, RecursionError):  # numbers of too many digits, values nested too deeply
        return f"{name}(**{observation_text(dict(args))})"
