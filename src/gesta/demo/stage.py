"""What both parts of the demo share: the options, the output, the record, and a shop for each session.

A record is the store of all runs. A session is one conversation.
"""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Literal

from msgspec import Struct
from rich.console import Console

import gesta
from gesta.demo import shop
from gesta.demo.driver import staffed
from gesta.demo.transcript import Summary, Transcript
from gesta.demo.voice import Voice
from gesta.entry import Entry
from gesta.errors import WriteFailed

AGENT = "gesta.demo:agent"
DEFAULT = "runs.gesta"


def program() -> str:
    """Return the word that starts this command: `gesta`, or the typed path if `gesta` would start another program."""
    typed, found = Path(sys.argv[0]), shutil.which("gesta")
    by_path = typed.name == "gesta" and typed.exists() and (found is None or not typed.samefile(found))
    return shlex.quote(str(typed)) if by_path else "gesta"


class Choices(Struct, frozen=True, kw_only=True):
    """The options of the demo, as typed on the command line."""

    record: str | None = None
    """File of the record; by default `GESTA_RECORD`, or else `runs.gesta`."""
    yes: bool = False
    """Whether refunds are approved without asking a person."""
    full: bool = False
    """Whether everything is printed, and not only the summary."""
    model: str | None = None
    """Address of a live model to use instead of the replay."""
    base_url: str | None = None
    interactive: bool = False
    """Whether there is a terminal at which a person can be asked."""
    kill: Literal["after", "before"] = "after"
    """When part 2 kills its process: after the shop's COMMIT, or (for tests) before it."""

    @property
    def address(self) -> str:
        """Address of the demo's record."""
        return self.record or os.environ.get("GESTA_RECORD") or DEFAULT

    @property
    def named(self) -> str:
        """The text ` --record FILE` for commands that the demo shows; `""` if these commands do not need the option."""
        unnamed = os.environ.get("GESTA_RECORD") or DEFAULT
        return f" --record {shlex.quote(self.address)}" if self.address != unnamed else ""

    @property
    def live(self) -> list[str]:
        """The options that name the live model, for the child process and for commands that the demo shows."""
        given = (("--model", self.model), ("--base-url", self.base_url))
        return [word for name, value in given if value for word in (name, value)]


class Verdict(Struct, frozen=True):
    """A person's answer about the refund, and the person's name."""

    verdict: Literal["approved", "denied"]
    by: str


class Stage:
    """Everything that one run of the demo needs: its options, its output and its sessions."""

    def __init__(self, choices: Choices, console: Console) -> None:
        self.choices = choices
        self.console = console
        self.voice = Voice(console, full=choices.full)
        self.sessions: list[str] = []
        """Sessions that have got a shop, in order."""
        self._transcripts: dict[str, Transcript] = {}

    @property
    def resume(self) -> str:
        """The shell command by which a person can continue the run that was written last."""
        words = [AGENT, *map(shlex.quote, self.choices.live)]
        return f"{program()} resume last {' '.join(words)}{self.choices.named}"

    def agent(self, pause_s: float = 0.0) -> gesta.Agent:
        """Return the agent with the chosen model.

        Args:
            pause_s: seconds between the pieces of a replayed answer.

        Raises:
            BadAddress: the address of the live model is wrong or missing.
            NoKey: the live model needs an API key, and none is set.
        """
        return staffed(self.choices.model, self.choices.base_url, pause_s)

    def shop(self, session: str) -> Path:
        """Return the path of a session's shop."""
        return shop.place(self.choices.address, session)

    async def free_number(self) -> int:
        """Return an unused number for the sessions and shops of this run of the demo.

        If the record does not exist, it is created.
        """
        async with gesta.open(self.choices.address) as record:
            named = [re.fullmatch(r"demo-(\d{1,9})(-crash)?", row.session) for row in await record.store.runs()]
        number = max((int(found[1]) for found in named if found), default=0) + 1
        while any(self.shop(f"demo-{number}{end}").exists() for end in ("", "-crash")):
            number += 1
        return number

    def open_shop(self, session: str) -> None:
        """Copy the original shop to a new file for a session. Raises WriteFailed if the file cannot be written."""
        try:
            shop.copy(self.shop(session))
        except OSError as error:
            raise WriteFailed(str(self.shop(session)), error.strerror or str(error)) from error
        self.sessions.append(session)

    async def entries(self, record: gesta.Record, session: str, after: int = 0) -> list[Entry]:
        """Return the entries of a session's run whose seq (number in the run) is above `after`.

        Return an empty list while the session has no run.
        """
        rows = await record.store.runs(session)
        return await record.read(rows[0].run, after) if rows else []

    async def show_new(self, record: gesta.Record, session: str, *, spoken: bool) -> None:
        """Print the entries of a session that were written since `show_new` was last called.

        Args:
            spoken: whether to print also what the customer and the agent said.
        """
        transcript = self.transcript(session)
        for entry in await self.entries(record, session, transcript.seen):
            transcript.show(entry, spoken=spoken)

    def transcript(self, session: str) -> Transcript:
        """Return the object that prints a session's entries: all entries with `--full`, else a summary."""
        kind = Transcript if self.choices.full else Summary
        return self._transcripts.setdefault(session, kind(self.voice))
