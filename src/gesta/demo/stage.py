"""What both parts of the demo use: the options, the output, the record, and a shop for each session."""

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
    """Return the word that starts this command again: `gesta`, or the typed path if a shell does not find that name."""
    typed, found = Path(sys.argv[0]), shutil.which("gesta")
    by_path = typed.name == "gesta" and typed.exists() and (found is None or not typed.samefile(found))
    return shlex.quote(str(typed)) if by_path else "gesta"


class Choices(Struct, frozen=True, kw_only=True):
    """The options of the demo."""

    record: str | None = None
    """File of the record; by default `GESTA_RECORD`, else `runs.gesta`."""
    yes: bool = False
    """Whether refunds are approved without asking."""
    full: bool = False
    """Whether everything is printed, not the summary alone."""
    model: str | None = None
    """Name of a live model that is used instead of the replay."""
    base_url: str | None = None
    interactive: bool = False
    """Whether a person can be asked."""
    kill: Literal["after", "before"] = "after"
    """When part 2 kills its process: after the shop's COMMIT, or before it, for tests."""

    @property
    def address(self) -> str:
        """Address of the record of the demo."""
        return self.record or os.environ.get("GESTA_RECORD") or DEFAULT

    @property
    def named(self) -> str:
        """The option `--record` for later commands, with a space before it; empty if they need no option."""
        unnamed = os.environ.get("GESTA_RECORD") or DEFAULT
        return f" --record {shlex.quote(self.address)}" if self.address != unnamed else ""

    @property
    def live(self) -> list[str]:
        """The options that choose a live model, for the child process and for commands that are shown."""
        given = (("--model", self.model), ("--base-url", self.base_url))
        return [word for name, value in given if value for word in (name, value)]


class Verdict(Struct, frozen=True):
    """A person's answer about the refund."""

    verdict: Literal["approved", "denied"]
    by: str


class Stage:
    """One run of the demo."""

    def __init__(self, choices: Choices, console: Console) -> None:
        self.choices = choices
        self.console = console
        self.voice = Voice(console, full=choices.full)
        self.sessions: list[str] = []
        """Sessions that have a shop, in order."""
        self._transcripts: dict[str, Transcript] = {}

    @property
    def resume(self) -> str:
        """The command that resumes the last run."""
        words = [AGENT, *map(shlex.quote, self.choices.live)]
        return f"{program()} resume last {' '.join(words)}{self.choices.named}"

    def agent(self, pause_s: float = 0.0) -> gesta.Agent:
        """Return the agent with the model that was chosen. Raises BadAddress and NoKey."""
        return staffed(self.choices.model, self.choices.base_url, pause_s)

    def shop(self, session: str) -> Path:
        """Return the path of a session's shop."""
        return shop.place(self.choices.address, session)

    async def free_number(self) -> int:
        """Return the number of the next run of the demo. Creates the record if it does not exist."""
        async with gesta.open(self.choices.address) as record:
            named = [re.fullmatch(r"demo-(\d{1,9})(-crash)?", row.session) for row in await record.store.runs()]
        number = max((int(found[1]) for found in named if found), default=0) + 1
        while any(self.shop(f"demo-{number}{end}").exists() for end in ("", "-crash")):
            number += 1
        return number

    def open_shop(self, session: str) -> None:
        """Make a session's copy of the shop. Raises WriteFailed."""
        try:
            shop.copy(self.shop(session))
        except OSError as error:
            raise WriteFailed(str(self.shop(session)), error.strerror or str(error)) from error
        self.sessions.append(session)

    async def entries(self, record: gesta.Record, session: str, after: int = 0) -> list[Entry]:
        """Return the entries of a session's run after `after`; an empty list while it has no run."""
        rows = await record.store.runs(session)
        return await record.read(rows[0].run, after) if rows else []

    async def show_new(self, record: gesta.Record, session: str, *, spoken: bool) -> None:
        """Print the entries that were written since the last call."""
        transcript = self.transcript(session)
        for entry in await self.entries(record, session, transcript.seen):
            transcript.show(entry, spoken=spoken)

    def transcript(self, session: str) -> Transcript:
        """Return the transcript of a session's run."""
        kind = Transcript if self.choices.full else Summary
        return self._transcripts.setdefault(session, kind(self.voice))
