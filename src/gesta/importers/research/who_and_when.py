"""Reads Who & When: failed conversations of several agents, each with the step that caused the failure.

A run is a list of entries (recorded facts): begin turn, user, (begin agent, thought, decision, completion, edge, end)…,
assistant, end, and the agent and step to blame. A seq is the number of an entry in its run. A span is a part of a run
from its begin entry to its end entry, such as a turn: the work on one message. A completion is a model's reply.

The agents share one conversation, and each speaks in spans of its own. The output of a code executor was not generated
by a model, so it is a result; the code stays text, without a call. The source has no ids and no times, and does not say
what a speaker had read or how a run ended, so causes, reasons and the last answer are inferred. In a group chat
everyone reads everything: the cause of a message is the message before it, or the speaker's own thought since then.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from gesta.importers.foreign import (
    Foreign,
    ForeignEntry,
    Members,
    Oddities,
    digest_json,
    each_document,
    list_in,
    plain_name,
)
from gesta.importers.format import Format, members_of
from gesta.importers.source import Document, Source
from gesta.kinds import (
    AssistantContent,
    BeginContent,
    ChatCompletionContent,
    Content,
    DecisionContent,
    EdgeContent,
    EndContent,
    Error,
    KeyValueContent,
    Reason,
    RequestHeaderContent,
    ThoughtContent,
    ToolResultContent,
    UserContent,
)

GROUP, ORCHESTRATED = "CaptainAgent", "Orchestrator"
"""Names of the runs, after the two systems that made them. Only messages of the first system have names."""
PERSON = ("human", "user")
"""Roles that mean the user, if the message has no name."""
TERMINALS = ("Computer_terminal", "ComputerTerminal")
"""Agents that run code and have no model."""
EXIT = re.compile(r"(?:exitcode: |The script ran, then exited with Unix exit code: )(\d+)")
ACT = re.compile(r"(.+?) \((.+)\)", re.DOTALL)
"""Finds a role with an action, as in `Orchestrator (-> WebSurfer)`."""
THOUGHT, HAND = "thought", "-> "
LEDGER = "Updated Ledger:"
STOP, FINAL, AFTER = "TERMINATE", "FINAL ANSWER:", "\nSCENARIO.PY "
"""The word that ends a group's conversation, and the texts before and after the answer of an orchestrated run."""
LIMITS = re.compile(r"Max (rounds|time) \(.*?\) reached\.")
EXITED = re.compile(r"SCENARIO\.PY EXITED WITH CODE: \S+")
CUT = "The source ends here, before an answer, and does not say why."
GUESSED = ("causes",)
BLAME = "mistake_"
"""Prefix of the members that name the agent to blame, the step, and the reason."""


class Word(Struct, frozen=True):
    """One message of the conversation, with its speaker and its text in separate fields."""

    place: int
    speaker: str
    """Name of the speaker; `""` for the user."""
    act: str
    """The action in the role: `thought`, `-> …` (words to another agent) or another word; usually `""`."""
    text: str
    extra: dict[str, Any] | None

    @property
    def runs_code(self) -> bool:
        """Whether the message is the output of a program."""
        return self.speaker in TERMINALS

    @property
    def closes(self) -> bool:
        """Whether the message only ends the conversation."""
        return self.text.strip() in ("", STOP)


class Talk(Struct):
    """Turns a conversation of several agents into the entries of a run."""

    name: str
    entries: list[ForeignEntry] = field(default_factory=list)
    messages: dict[int, int] = field(default_factory=dict)
    """Seq of each message's entry, by the number of the message."""
    spans: list[tuple[int, str]] = field(default_factory=list)
    """Seqs and names of the open spans, the outermost first."""
    said: int | None = None
    """Seq of the last message, which all agents read."""
    thought: int | None = None
    """Seq of the speaker's last thought after the message `said`."""
    header: Any = None
    """The instructions in the last request header."""

    def write(self, content: Content, cause: int | None = None, inferred: Collection[str] = ()) -> int:
        """Write an entry in the innermost open span, and return its seq.

        The entry has no time, as the source has none.

        Args:
            cause: seq of the entry that this one was made from.
            inferred: names of the facts in the entry that the source does not state.
        """
        span = self.spans[-1][0] if self.spans else 0
        if isinstance(content, BeginContent):
            span = len(self.entries) + 1
            self.spans.append((span, content.name))
        causes = () if cause is None else (cause,)
        unsure = tuple(name for name in inferred if causes or name != "causes")
        self.entries.append(ForeignEntry(content=content, span=span, causes=causes, sure=False, inferred=unsure))
        return len(self.entries)

    def begin(self, name: str, role: str, state: Any = None) -> None:
        """Begin a span inside the innermost open span. `state` is any facts about the span, as JSON data."""
        self.write(BeginContent(name=name, role=role, parent=self.spans[-1][0] if self.spans else None, state=state))

    def end(self, end: EndContent | None = None) -> None:
        """End the innermost open span. `end` holds the reason and status of the end, if they are known."""
        content = end or EndContent()
        self.write(content, inferred=("reason",) if content.reason else ())
        self.spans.pop()

    def stand(self, seq: int, place: int) -> int:
        """Mark the entry `seq` as the entry of message number `place` of the source, and return `seq`."""
        self.entries[seq - 1] = replace(self.entries[seq - 1], message=place)
        self.messages[place] = seq
        return seq

    def speak(self, name: str) -> None:
        """Begin a span for a speaker, unless a span of this speaker is open. A span of another speaker is ended first.

        If the name is `""`, no span is begun.
        """
        name = _span_name(name) if name else ""
        if len(self.spans) > 1 and self.spans[-1][1] != name:
            self.end()
            self.thought = None
        if name and len(self.spans) == 1:
            self.begin(name, "agent")

    def instruct(self, instructions: Any) -> None:
        """Write a request header: an entry with the speaker's instructions.

        If the last request header has the same instructions, nothing is written.
        """
        if isinstance(instructions, str) and instructions != self.header:
            self.header = instructions
            self.write(RequestHeaderContent(meta={"instructions": instructions}))


MEMBERS = members_of(
    """path question question_ID ground_truth level is_correct is_corrected labels system_prompt role name content
    history mistake_agent mistake_step mistake_reason"""
)


def read(source: Source, oddities: Oddities) -> Iterator[Foreign]:
    """Yield each run of a file, converted to entries of Gesta. Raises BadImport.

    `oddities` counts problems of the source by name, such as a call without a result.
    """
    return each_document(source, oddities, lambda document, words, odd: _run(document, source.path, words, odd))


def _span_name(name: str) -> str:
    return plain_name(name) or "agent"


def _blames(key: str, value: Any) -> bool:
    return key.startswith(BLAME) and value is not None


def _run(document: Document, path: str, where: str, oddities: Oddities) -> Foreign:
    missing = f"expected a run with its history, a list; found something else in {where}"
    history = list_in(document.value, "history", path, missing)
    words = [_word(message, place, oddities) for place, message in enumerate(history)]
    named = any(isinstance(message, dict) and isinstance(message.get("name"), str) for message in history)
    talk = Talk(GROUP if named else ORCHESTRATED)
    members = Members(document.value, oddities)
    members.take("history", list)
    blame = {key: members.take(key, object) for key, value in document.value.items() if _blames(key, value)}
    prompts: dict[str, Any] = members.take("system_prompt", dict) or {}
    asked = words[0] is not None and not words[0].speaker if words else False
    question = None if asked else members.take("question", str)
    speakers = {word.speaker for word in words if word is not None and not word.runs_code}
    unused = {key: text for key, text in prompts.items() if key not in speakers or not isinstance(text, str)}
    notes = members.rest() or {}
    packed = [document.path, notes["path"]] if document.path and "path" in notes else document.path
    notes |= ({"path": packed} if packed else {}) | ({"system_prompt": unused} if unused else {})
    talk.begin("import", "import", notes or None)
    talk.end()
    talk.begin(talk.name, "turn")
    if question is not None:
        talk.said = talk.write(UserContent(value=question), inferred=("kind",))
    team = _team(words)
    for place, word in enumerate(words):
        if word is None:
            oddities["unreadable-message"] += 1
            talk.speak("")
            talk.stand(talk.write(KeyValueContent(key="unreadable-message", value=history[place])), place)
        else:
            _take(talk, word, prompts, team)
    talk.speak("")
    _close(talk, words)
    _blame(talk, blame, words, oddities)
    own = plain_name(document.value.get("question_ID")) or plain_name(document.path) or str(document.place)
    return Foreign(id=own, name=talk.name, digest=digest_json(document.value), entries=talk.entries, plain=True)


def _word(message: Any, place: int, oddities: Oddities) -> Word | None:
    """Return a message of the source as a `Word`, with its number `place`; `None` if it has no role."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str) or not message["role"]:
        return None
    members = Members(message, oddities)
    role, text = members.take("role", str) or "", members.take("content", str) or ""
    name = members.take("name", str) or ""
    act = ACT.fullmatch(role) if not name else None
    speaker, done = (act[1], act[2]) if act else (name or role, "")
    if not name and role in PERSON:
        speaker = ""
    extra = {"role": role} | ({"name": name} if name and plain_name(name) != name else {}) | (members.rest() or {})
    return Word(place, speaker, done, text, extra)


def _team(words: list[Word | None]) -> list[str]:
    """Return the names of the agents that speak or are spoken to, in the order in which they first appear."""
    acts = (word.act.removeprefix(HAND) for word in words if word is not None and word.act.startswith(HAND))
    silent = (word.speaker for word in words if word is not None and word.speaker and not word.act)
    return list(dict.fromkeys([*acts, *silent]))


def _take(talk: Talk, word: Word, prompts: dict[str, Any], team: list[str]) -> None:
    """Write one message of the source into the run, as one or more entries.

    Args:
        talk: writes the entries of the run.
        word: the message.
        prompts: instructions by agent.
        team: names of all agents.
    """
    talk.speak(word.speaker)
    if word.runs_code:
        talk.said = talk.stand(talk.write(_printed(word), talk.said, GUESSED), word.place)
    elif not word.speaker:
        talk.said = talk.stand(talk.write(UserContent(value=word.text, extra=word.extra)), word.place)
    elif word.act == THOUGHT:
        made = ThoughtContent(value=word.text, extra=word.extra)
        talk.thought = talk.stand(talk.write(made, talk.thought or talk.said, GUESSED), word.place)
        decision = _decision(word, team)
        if decision is not None:
            talk.thought = talk.write(decision, talk.thought, ("candidates",))
    elif not word.act or word.act.startswith(HAND):
        talk.instruct(prompts.get(word.speaker))
        spoken = ChatCompletionContent(output=word.text, extra=word.extra)
        talk.said = talk.stand(talk.write(spoken, talk.thought or talk.said, GUESSED), word.place)
        talk.thought = None
        if word.act:
            source, dest = [name for _, name in talk.spans], _span_name(word.act.removeprefix(HAND))
            talk.write(EdgeContent(source=source, dest=[source[0], dest]), talk.said)
    else:
        note = KeyValueContent(key=word.act, value=word.text, extra=word.extra)
        talk.said = talk.stand(talk.write(note, talk.thought or talk.said, GUESSED), word.place)


def _printed(word: Word) -> ToolResultContent:
    """Return the output of a code executor as a result.

    Without an exit code, no program ran and the status is unknown.
    """
    code = EXIT.match(word.text)
    if code is None:
        return ToolResultContent(tool_result=word.text, status=None, extra=word.extra)
    good = not code[1].strip("0")
    return ToolResultContent(
        tool_result=word.text,
        status="success" if good else "error",
        outcome="ok" if good else "error",
        extra=word.extra,
    )


def _decision(word: Word, team: list[str]) -> DecisionContent | None:
    """Return which agent of `team` an orchestrator chose to speak next; `None` if `word` does not note a choice."""
    if not word.text.startswith(LEDGER):
        return None
    try:
        ledger = json.JSONDecoder(strict=False).raw_decode(word.text.removeprefix(LEDGER).lstrip())[0]
    except (ValueError, RecursionError):
        return None
    routing = ledger.get("next_speaker") if isinstance(ledger, dict) else None
    choice, why = (routing.get("answer"), routing.get("reason")) if isinstance(routing, dict) else (None, None)
    if not isinstance(choice, str):
        return None
    return DecisionContent(choice=choice, candidates=team, rationale=why if isinstance(why, str) else None)


def _close(talk: Talk, words: list[Word | None]) -> None:
    """Write the answer that `_answer` returns, if any, and end the turn: answered, failed, or stopped by a limit."""
    last = words[-1] if words else None
    answer, by = _answer(talk, words)
    if answer is not None:
        talk.write(AssistantContent(value=answer), by, ("kind", *GUESSED))
    shown = last.text if last is not None and talk.name == ORCHESTRATED else ""
    limit, failed = LIMITS.match(shown), EXITED.search(shown)
    reason: Reason = "answered"
    error = None
    if limit is not None:
        reason, error = "limit", Error(type=limit[1], message=limit[0])
    elif failed is not None and answer is None:
        reason, error = "failed", Error(type="exit", message=failed[0])
    elif answer is None:
        reason, error = "limit", Error(type="rounds", message=CUT)
    talk.end(EndContent(status="success" if reason == "answered" else "error", reason=reason, error=error))


def _answer(talk: Talk, words: list[Word | None]) -> tuple[str | None, int | None]:
    """Return the answer that the user was shown, and the seq of its entry; `None` for both without an answer."""
    last = words[-1] if words else None
    if last is None or not last.speaker:
        return None, None
    if talk.name == ORCHESTRATED:
        _, found, rest = last.text.rpartition(FINAL)
        return (rest.partition(AFTER)[0].strip(), talk.messages[last.place]) if found else (None, None)
    if STOP not in last.text or last.runs_code:
        return None, None
    for word in reversed(words):
        if word is not None and word.speaker and not word.runs_code and not word.closes:
            return word.text, talk.messages[word.place]
    return None, None


def _blame(talk: Talk, blame: dict[str, Any], words: list[Word | None], oddities: Oddities) -> None:
    """Write an entry that names the agent and the step to blame. Its cause is the entry of that step."""
    if not blame:
        return
    step, agent = blame.get(f"{BLAME}step"), blame.get(f"{BLAME}agent")
    text = str(step) if isinstance(step, str | int) and not isinstance(step, bool) else ""
    place = int(text) if text.isdecimal() and len(text) < 10 else None
    seq = talk.messages.get(place) if place is not None else None
    oddities["unknown-step"] += seq is None
    word = words[place] if place is not None and seq is not None else None
    oddities["other-speaker"] += word is not None and word.speaker != agent
    talk.begin("review", "review")
    talk.write(KeyValueContent(key="mistake", value=blame), seq)
    talk.end()


FORMATS = (
    Format(
        "who-and-when",
        "failed runs of several agents, with `mistake_step`",
        "object",
        ("history", "mistake_step"),
        read,
        members=MEMBERS,
    ),
)
