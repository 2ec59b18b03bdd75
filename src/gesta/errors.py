"""Every error that Gesta raises on purpose, each saying what was found, what was expected and what to do.

GestaError
├── RecordError        the file or database as a whole
│   ├── NoRecord         there is none where one should be read
│   ├── BrokenRecord     it is no record, or its bytes were changed
│   ├── NewerRecord      a later release wrote it
│   └── WriteFailed      full disk, read-only folder, lost connection: nothing more is effected
│       ├── RecordBusy     others write without a pause, for longer than was waited
│       └── ServerGone     the database server cannot be reached
├── RunError           one run of it
│   ├── NoRun            no such run
│   ├── SeveralRuns      the beginning of several ids
│   ├── RunHeld          somebody else is writing it
│   ├── RunMirrored      it is a mirror of a run in another record, or was moved there
│   ├── LeaseLost        the writer is no longer the writer, or behind the head
│   ├── TurnOpen         a turn is open, and another was to begin
│   ├── OtherMessage     a key that was used before, with another message
│   ├── OtherProgram     a program does not fit what is on record of it
│   └── OtherType        an answer on record is not of the type that is asked for
├── AgentError         an agent, tool or script that cannot be used as it is
│   ├── BadTool, BadArguments, BadAddress, MissingExtra, NoKey
│   └── ScriptExhausted  a scripted or replayed model has no more items
├── ModelFault         a provider did not answer (caught by `perform`, written as a `fault`)
└── InDoubt            raised by a tool: it cannot say whether its effect happened
"""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, words: Iterable[str]) -> str:
    """Name the word that was probably meant, as the end of a message; empty when none is near."""
    close = get_close_matches(word, list(words), 1, 0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def message_of(error: object) -> str:
    """Say what an error says of itself; one that cannot even do that has no message. Total."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - the errors of others may be broken too
        return ""


class GestaError(Exception):
    """Base of all errors that Gesta raises on purpose."""


class RecordError(GestaError):
    """The record as a whole cannot be used."""


class NoRecord(RecordError):
    """There is no record where one should be read."""

    def __init__(self, address: str) -> None:
        super().__init__(f"No record at {address!r}. Name one with --record FILE, or run `gesta demo` to make one.")


class BrokenRecord(RecordError):
    """It is no record, or its bytes were changed."""

    def __init__(self, address: str, found: str) -> None:
        super().__init__(f"{address!r} is not a readable Gesta record: {found}. Nothing was changed.")


class NewerRecord(RecordError):
    """A later release wrote it."""

    def __init__(self, where: str, found: int, known: int) -> None:
        super().__init__(
            f"{where} has format {found}; this release reads up to {known}. Install a newer gesta to read it."
        )


class WriteFailed(RecordError):
    """Entries could not be committed; the handle is closed for writing."""

    def __init__(self, address: str, found: str, *, stands: str = "What was committed before stands") -> None:
        super().__init__(
            f"Could not write to {address!r}: {found}. {stands}, and nothing happened after; mend that and go on."
        )


class RecordBusy(WriteFailed):
    """Others have been writing without a pause, for longer than was waited."""


class ServerGone(WriteFailed):
    """The database server cannot be reached, neither for writing nor for reading."""

    def __init__(self, address: str, found: str) -> None:
        super(WriteFailed, self).__init__(
            f"The server of {address!r} cannot be reached: {found}. What was committed before stands, and nothing "
            "happened after; start the server and go on."
        )


class RunError(GestaError):
    """One run cannot be used as asked."""


class NoRun(RunError):
    """No such run."""

    def __init__(self, asked: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"No run {asked!r} in this record.{nearest(asked, known)} `gesta runs` lists them.")


class SeveralRuns(RunError):
    """What was asked for begins several ids."""

    def __init__(self, asked: str, runs: list[str]) -> None:
        shown = ", ".join(runs[:5]) + (", ..." if len(runs) > 5 else "")
        super().__init__(f"{len(runs)} runs begin with {asked!r}: {shown}. Write more of the id, or a session name.")


class RunHeld(RunError):
    """Somebody else is writing this run."""

    def __init__(self, run: str, owner: str, since: str, head: int, unknown: str | None = None) -> None:
        super().__init__(
            f"Run {run!r} is being written by {owner} since {since} (head {head}). "
            "Wait until it is done, or end that process."
        )
        self.run, self.owner, self.since, self.head = run, owner, since, head
        self.unknown = unknown
        """The process, where nobody knows whether it still lives."""


class RunMirrored(RunError):
    """The run is a mirror of a run in another record, or was moved there."""

    def __init__(self, run: str, record: str, *, moved: bool = False) -> None:
        found = "was moved to" if moved else "is a mirror of the same run in"
        super().__init__(
            f"Run {run!r} {found} the record with id {record!r}, and takes no turn here. Go on in that record, or "
            "move the run here: gesta push --move SOURCE THIS."
        )
        self.run, self.record, self.moved = run, record, moved


class LeaseLost(RunError):
    """The writer is no longer the writer, or is behind the head."""

    def __init__(self, run: str, expected: str, found: str) -> None:
        super().__init__(
            f"Cannot append to run {run!r}: expected {expected}, found {found}. "
            "Read the run again and go on from its head."
        )


class TurnOpen(RunError):
    """A turn is open, and another message came."""

    def __init__(self, run: str, turn: int, waiting: str) -> None:
        super().__init__(
            f"Run {run!r} has an open turn ({run}.{turn}) that is {waiting}. "
            f"Resume or cancel it first: gesta resume {run} FILE.py:AGENT, or gesta cancel {run}."
        )
        self.run, self.turn = run, turn


class OtherMessage(RunError):
    """A key that was used before, with another message."""

    def __init__(self, run: str, key: str, known: str, got: str) -> None:
        super().__init__(
            f"Key {key!r} of run {run!r} stands for the message {known!r:.200}, and now comes with {got!r:.200}. "
            "Send the same message with it, or another message with another key."
        )
        self.run, self.key = run, key


class OtherProgram(RunError):
    """A program does not fit what is on record of it, or uses a name twice."""

    def __init__(self, name: str, found: str, expected: str) -> None:
        super().__init__(f"{name!r}: {found}; expected {expected}.")
        self.name = name


class OtherType(RunError):
    """An answer that is on record is not of the type that the agent has now."""

    def __init__(self, run: str, turn: int, wrong: str) -> None:
        super().__init__(
            f"Turn {run}.{turn} is answered, and its answer does not fit the agent's `output`: {wrong}. Give the "
            "agent the type that it had then, or send the message with another key."
        )
        self.run, self.turn = run, turn


class AgentError(GestaError):
    """An agent, tool or model that cannot be used as it is."""


class BadTool(AgentError):
    """A tool whose definition cannot be offered to a model."""


class BadArguments(AgentError):
    """Arguments that do not fit a tool; the message names the path and goes back to the model."""


class BadAddress(AgentError):
    """A model, agent or record address that leads nowhere."""


class MissingExtra(AgentError):
    """A library that an optional part needs is not installed."""

    def __init__(self, what: str, library: str, extra: str) -> None:
        super().__init__(f"{what} needs {library!r}, which is not installed: pip install 'gesta[{extra}]'")


class NoKey(AgentError):
    """A provider needs a key and none was found."""

    def __init__(self, provider: str, variable: str) -> None:
        super().__init__(
            f"No key for {provider!r}: set {variable}. Without a key, `gesta demo` runs, and so do agents on "
            "gesta.scripted(...) or gesta.replay(...)."
        )


class ScriptExhausted(AgentError):
    """A scripted or replayed model was asked more often than it has items."""

    def __init__(self, name: str, asked: int, items: int) -> None:
        super().__init__(f"Model {name!r} was asked for answer {asked} but holds {items}. Add an item, or set limits.")


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
        self.type, self.message = type_, message
        self.http_status, self.retry, self.retry_after_s = http_status, retry, retry_after_s


class InDoubt(GestaError):
    """Raise it in a tool that cannot say whether its effect happened: the call is not run again blindly."""
