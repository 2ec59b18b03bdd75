"""Every error that Gesta raises on purpose, each saying what was found, what was expected and what to do.

An `except` clause for an error also catches the errors below it in this tree:

    GestaError
    ├── RecordError        the file or database as a whole
    │   ├── NoRecord         there is no record at the address
    │   ├── BrokenRecord     the file or database is not a record, or its bytes were changed
    │   │   └── ForeignObjects  it holds code that Gesta did not make and that would run when it is used
    │   ├── NewerRecord      a later release wrote it
    │   └── WriteFailed      full disk, read-only folder, lost connection: no further effects
    │       ├── RecordBusy     others wrote without a pause while Gesta waited
    │       └── ServerGone     the database server cannot be reached
    ├── RunError           one run of the record
    │   ├── NoRun            no such run
    │   ├── SeveralRuns      the text fits several runs
    │   ├── RunHeld          somebody else is writing the run
    │   ├── RunMirrored      the run is a copy of a run in another record, or was moved there
    │   ├── LeaseLost        the writer has no lease (right to write) any more, or missed entries
    │   ├── NotWaiting       nothing waits for this answer, or several things do
    │   │   └── Expired        the request was answered too late
    │   ├── SaidBefore       somebody gave another answer before
    │   ├── TurnOpen         a new turn cannot begin while one is open
    │   ├── OtherMessage     the key was used for another message
    │   ├── OtherProgram     a program does not do what the record says it did
    │   ├── OtherType        an answer on record is not of the agent's type
    │   └── NoAnswer         the turn has no answer
    ├── AgentError         an agent, tool or script that cannot be used as it is
    │   ├── BadTool, BadArguments, BadAddress, MissingExtra, NoKey, NoDeps, NoServer
    │   └── ScriptExhausted  a scripted or replayed model has no more items
    ├── ModelFault         a provider did not answer (Gesta catches it and writes a `fault` entry)
    ├── ToolError          raised by a tool: it failed; the model reads the message of the error
    └── InDoubt            raised by a tool: it cannot say whether its effect happened
"""

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

from gesta.text.redactor import SECRETS


def nearest(word: str, words: Iterable[str]) -> str:
    """Return a sentence that suggests the most similar of some words; an empty string if no word is similar."""
    close = get_close_matches(word, list(words), 1, 0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def refuse_unknown(function: str, options: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for the first of `options` that is not in `known`, the names of the options of `function`."""
    for name in options:
        if name not in known:
            raise TypeError(f"{function} has no option {name!r}.{nearest(name, known)} It has: {', '.join(known)}.")


def message_of(error: object) -> str:
    """Return the message of an error; an empty string if the error raises when its message is read. Never raises."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - errors of other libraries may raise here
        return ""


class GestaError(Exception):
    """Base of all errors that Gesta raises on purpose. Their messages hold no secret that this process knows."""

    by_name = True
    """Whether a value is also removed from messages if only its name or place shows that it is secret."""

    def __init__(self, *args: object) -> None:
        clean = SECRETS.message if self.by_name else SECRETS.text
        super().__init__(*(clean(each) if isinstance(each, str) else each for each in args))

    def add_note(self, note: str, /) -> None:
        """Add a note to the error, after removing the secrets in it."""
        super().add_note(SECRETS.message(note))


class RecordError(GestaError):
    """The file or database of a record cannot be used."""


class NoRecord(RecordError):
    """There is no record at the address, and the caller needs one."""

    def __init__(self, address: str) -> None:
        super().__init__(f"No record at {address!r}. Name one with --record FILE, or run `gesta demo` to make one.")


class BrokenRecord(RecordError):
    """The file or database is not a record, or its bytes were changed."""

    def __init__(self, address: str, found: str) -> None:
        super().__init__(f"{address!r} is not a readable Gesta record: {found}. Nothing was changed.")
        self.address, self.found = address, found


class ForeignObjects(BrokenRecord):
    """The record holds code that Gesta did not make and that would run when it is used, or it lacks a table."""

    def __init__(self, address: str, found: list[str], then: str | None = None) -> None:
        shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        then = then or f"`gesta repair {address}` shows it, and what can be removed"
        held = "It holds what no release of Gesta makes, and what would run when the record is used"
        super(BrokenRecord, self).__init__(f"{address!r} was not opened. {held}: {shown}. Nothing of it ran. {then}.")
        self.address, self.found = address, shown


class SetAside(UserWarning):
    """A warning: the record holds triggers or views that Gesta did not make. They are not run or read."""

    def __init__(self, address: str, found: list[str]) -> None:
        super().__init__(
            f"Set aside in {address!r}: {', '.join(found)}. No release of Gesta makes that, and nothing of it is run "
            f"here. `gesta verify {address}` counts it as a flaw, and `gesta repair {address}` takes it out."
        )


class NewerRecord(RecordError):
    """A later release of Gesta wrote the record."""

    def __init__(self, where: str, found: int, known: int) -> None:
        super().__init__(
            f"{where} has format {found}; this release reads up to {known}. Install a newer gesta to read it."
        )


class WriteFailed(RecordError):
    """Entries could not be committed. The opened run accepts no further entries."""

    def __init__(self, address: str, found: str, *, stands: str = "What was committed before stands") -> None:
        super().__init__(
            f"Could not write to {address!r}: {found}. {stands}, and nothing happened after; mend that and go on."
        )


class RecordBusy(WriteFailed):
    """Other processes wrote to the record without a pause, for the whole time that Gesta waited."""


class ServerGone(WriteFailed):
    """The database server cannot be reached, neither for writing nor for reading."""

    def __init__(self, address: str, found: str) -> None:
        super(WriteFailed, self).__init__(
            f"The server of {address!r} cannot be reached: {found}. What was committed before stands, and nothing "
            "happened after; start the server and go on."
        )


class RunError(GestaError):
    """Base of the errors about one run of a record."""

    found = ""
    """What was found, without what to do about it in Python or at a terminal; empty if there is no such part."""


class NoRun(RunError):
    """The record has no such run, and no session of that name."""

    def __init__(self, asked: str, known: Iterable[str] = ()) -> None:
        self.found = f"No run or session {asked!r} in this record"
        super().__init__(f"{self.found}.{nearest(asked, known)} `gesta runs` lists them.")


class SeveralRuns(RunError):
    """A text that should name one run fits several runs."""

    def __init__(self, asked: str, runs: list[str]) -> None:
        shown = ", ".join(runs[:5]) + (", ..." if len(runs) > 5 else "")
        self.found = f"{len(runs)} runs fit {asked!r}: {shown}"
        super().__init__(f"{self.found}. Write a start of only one id, or a session name.")


class RunHeld(RunError):
    """Another process, or another task of this one, is writing this run."""

    def __init__(self, run: str, owner: str, since: str, head: int, unknown: str | None = None) -> None:
        super().__init__(
            f"Run {run!r} is being written by {owner} since {since} (head {head}). "
            "Wait until it is done, or end that process."
        )
        self.run, self.owner, self.since, self.head = run, owner, since, head
        self.unknown = unknown
        """Name of the process that holds the run, if nobody knows whether it is still running; else `None`."""


class RunMirrored(RunError):
    """The run is a copy of a run in another record, or was moved there. It can be continued only there."""

    def __init__(self, run: str, record: str, *, moved: bool = False) -> None:
        found = "was moved to" if moved else "is a mirror of the same run in"
        super().__init__(
            f"Run {run!r} {found} the record with id {record!r}, and takes no turn here. Go on in that record, or "
            "move the run here: gesta push --move SOURCE THIS."
        )
        self.run, self.record, self.moved = run, record, moved


class LeaseLost(RunError):
    """This process lost the right to write the run, or it has not read all entries of the run."""

    def __init__(self, run: str, expected: str, found: str) -> None:
        super().__init__(
            f"Cannot append to run {run!r}: expected {expected}, found {found}. "
            "Read the run again and go on from its head."
        )


WAITED = {
    "approval": "call that waits for approval",
    "question": "question that waits",
    "doubt": "call in doubt",
    "turn": "open turn",
}
"""Names in error messages for the things that a person can answer or end."""


class NotWaiting(RunError):
    """A person gave an answer that the run does not wait for, or that fits several waits."""

    def __init__(
        self,
        run: str,
        what: str,
        waiting: Sequence[str],
        wanted: int | None = None,
        *,
        others: Sequence[str] = (),
        missed: bool = False,
    ) -> None:
        named, thing = ", ".join(waiting), WAITED[what]
        which = f" with seq {wanted}" if wanted is not None else ""
        if not waiting:
            rest = f"; what waits: {', '.join(others)}" if others else ""
            found = f"has no {thing}{which}, nor has a run below it{rest}"
            todo = "`record.waiting(run)` and `gesta runs` list what waits."
        elif len(waiting) > 1 and not missed:
            found = f"has {len(waiting)} of them, expected one {thing}{which}: {named}"
            todo = "Write one of these, with the run that it names, or pass an element of outcome.waiting."
        else:
            found, todo = f"has no {thing}{which}; it has {named}", "Write that, or pass an element of outcome.waiting."
        super().__init__(f"Run {run!r} {found}. {todo}")
        self.run, self.what, self.waiting, self.found = run, what, tuple(waiting), f"Run {run!r} {found}"


class Expired(NotWaiting):
    """A person answered a request for approval after the request had expired."""

    def __init__(self, run: str, call: int, at: str) -> None:
        self.found = f"Run {run!r} waits no more for approval of call {call}: the request expired at {at}"
        todo = "The call does not run; resume the run, and the model reads that nobody answered in time."
        RunError.__init__(self, f"{self.found}. {todo}")
        self.run, self.what, self.waiting = run, "approval", ()


class SaidBefore(RunError):
    """Somebody already gave a different answer to the same question or request."""

    def __init__(self, run: str, what: str, verdict: str, by: str, root: str) -> None:
        self.found = f"Run {run!r} has its word on {what}: {verdict} by {by!r}, and the first answer counts"
        todo = f"To go on: record.resume({root!r}, agent), or gesta resume {root} FILE.py:AGENT."
        super().__init__(f"{self.found}. Nothing was sent. {todo}")
        self.run, self.verdict, self.by, self.root = run, verdict, by, root


class TurnOpen(RunError):
    """Another message was sent while a turn of the run is open."""

    def __init__(self, run: str, turn: int, waiting: str) -> None:
        self.found = f"Run {run!r} has an open turn ({run}.{turn}) that is {waiting}"
        todo = f"gesta resume {run} FILE.py:AGENT, or gesta cancel {run}"
        super().__init__(f"{self.found}. Resume or cancel it first: {todo}.")
        self.run, self.turn = run, turn


class OtherMessage(RunError):
    """A message was sent with a key that was used before for another message."""

    def __init__(self, run: str, key: str, known: str, got: str) -> None:
        super().__init__(
            f"Key {key!r} of run {run!r} stands for the message {known!r:.200}, and now comes with {got!r:.200}. "
            "Send the same message with it, or another message with another key."
        )
        self.run, self.key = run, key


class OtherProgram(RunError):
    """The program of a workflow differs from what is on record, or uses the name of a step twice."""

    def __init__(self, name: str, found: str, expected: str) -> None:
        super().__init__(f"{name!r}: {found}; expected {expected}.")
        self.name = name


class OtherType(RunError):
    """A recorded answer does not fit the type that the agent's answers have now."""

    def __init__(self, run: str, turn: int, wrong: str) -> None:
        super().__init__(
            f"Turn {run}.{turn} is answered, and its answer does not fit the agent's `output`: {wrong}. Give the "
            "agent the type that it had then, or send the message with another key."
        )
        self.run, self.turn = run, turn


class NoAnswer(RunError):
    """The value of a turn was read, but the turn has no answer."""

    def __init__(self, run: str, reason: str, why: str | None) -> None:
        found = f"The turn of run {run!r} " + ("waits" if reason == "waiting" else f"ended with reason {reason!r}")
        todo = "outcome.waiting says what for." if reason == "waiting" else "Look at outcome.reason first."
        super().__init__(f"{found}{f' ({why})' if why else ''}, so it has no value. {todo}")
        self.run, self.reason = run, reason


class AgentError(GestaError):
    """An agent, tool or model that cannot be used as it is."""


class BadTool(AgentError):
    """A tool whose definition cannot be offered to a model."""


class BadArguments(AgentError):
    """The arguments of a call do not fit the tool. The message says where, and the model reads it."""

    by_name = False  # the model has to read its arguments, whatever their names


class BadAddress(AgentError):
    """The address of a model, agent, server or record is misspelt or names none that Gesta can use."""


class MissingExtra(AgentError):
    """A library that an optional part needs is not installed."""

    def __init__(self, what: str, library: str, extra: str) -> None:
        super().__init__(f"{what} needs {library!r}, which is not installed: pip install 'gesta[{extra}]'")


class NoKey(AgentError):
    """A provider needs a key, and no key was found."""

    def __init__(self, provider: str, variable: str) -> None:
        todo = "Without a key, `gesta demo` runs, and so do agents on gesta.scripted(...) or gesta.replay(...)."
        super().__init__(f"No key for {provider!r}: set {variable}. {todo}")


class NoDeps(AgentError):
    """A function or tool of the agent needs deps (objects from the program), and the turn has none."""

    def __init__(self, agent: str, function: str, needed: object) -> None:
        found = f"{function!r} needs deps ({getattr(needed, '__name__', repr(needed))}), and none were given"
        todo = "deps=... where the turn is begun or resumed, or Agent(deps=FUNCTION) with a function that makes them."
        super().__init__(f"Agent {agent!r}: {found}. Nothing was begun. Write {todo}")


class NoServer(AgentError):
    """A server with tools of an agent does not start, cannot be reached, or does not list its tools."""

    def __init__(self, server: str, found: str, todo: str) -> None:
        super().__init__(f"The server of tools {server!r} cannot be used: {found}. {todo}.")


class ScriptExhausted(AgentError):
    """A scripted or replayed model was asked for more replies than it has."""

    def __init__(self, name: str, asked: int, items: int) -> None:
        todo = "It counts the answers of the whole run: add one, or begin another session."
        super().__init__(f"Model {name!r} was asked for answer {asked} but holds {items}. {todo}")


class ModelFault(GestaError):
    """A provider did not answer."""

    def __init__(
        self,
        type_: str,
        message: str,
        *,
        http_status: int | None = None,
        retry: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.type, self.message = SECRETS.text(type_), str(self)
        self.http_status, self.retry, self.retry_after_s = http_status, retry, retry_after_s


class InDoubt(GestaError):
    """A tool raises this if it cannot say whether its effect happened. Gesta does not repeat the call automatically."""

    by_name = False


class ToolError(GestaError):
    """A tool raises this to say that it failed. The model reads the message of the error and nothing else."""

    by_name = False
