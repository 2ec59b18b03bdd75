"""Commands that run an agent: `demo`, `run`, `resume`, `work`.

A run is one conversation of an agent, recorded as a list of entries, each with a number `seq`. A turn is one message
with all that follows until its answer. The docstrings of commands are help texts.
"""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.app import command, silenced
from gesta.cli.options import OnRecord, Run, Servers, WorkOptions, quoted
from gesta.cli.talk import DIM, Stop, json_line, put, say, terminal

if TYPE_CHECKING:
    from gesta.cli.driving import Job
    from gesta.kinds import Part

AgentAddress = Annotated[
    str,
    typer.Argument(metavar="FILE.py:NAME", help="The agent: FILE.py:NAME or dotted.module:NAME.", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve every call that waits, under the name `--yes`.")]


@dataclass(frozen=True, kw_only=True)
class WithModel(OnRecord):
    """Command-line options of a command that asks a model, such as `gesta run`."""

    yes: Yes = False
    model: Annotated[
        str | None, typer.Option("--model", metavar="PROVIDER:NAME", help="Ask this model instead.", show_default=False)
    ] = None
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", metavar="URL", help="Ask an OpenAI-compatible server.", show_default=False),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RunOptions(WithModel):
    """Command-line options of `gesta run`."""

    agent: AgentAddress
    text: Annotated[
        str | None, typer.Argument(metavar="TASK", help="The task; `-` reads standard input.", show_default=False)
    ] = None
    session: Annotated[
        str | None,
        typer.Option("--session", "-s", metavar="NAME", help="Continue this conversation.", show_default=False),
    ] = None
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="A second message with this key is ignored.", show_default=False),
    ] = None
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="The person who sends the task.", show_default=False)
    ] = None
    mcp: Servers = None
    file: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="PATH", help="An image or file to send; repeatable.", show_default=False),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(WithModel):
    """Command-line options of `gesta resume`."""

    run: Run
    agent: AgentAddress
    mcp: Servers = None


@dataclass(frozen=True, kw_only=True)
class DemoOptions(WithModel):
    """Command-line options of `gesta demo`."""

    full: Annotated[bool, typer.Option("--full", help="Print the whole conversations, not a summary of them.")] = False


@command(DemoOptions, example="gesta demo --yes --record demo.gesta")
def demo(options: DemoOptions) -> int:
    """Watch an agent work, be killed, and continue: no key needed.

    A support desk agent on a real shop database makes a refund that a person approves. The refund happens once,
    although the agent's process is killed in the middle of it. The model replays a conversation; --model or --base-url
    asks a live model.
    """
    from rich.console import Console

    from gesta.demo.play import Choices, play

    class Page(Console):
        """A console that ends the program if the reader closes the pipe. Rich itself would use the exit code 1."""

        def on_broken_pipe(self) -> None:
            raise SystemExit(silenced())

    record = options.target(new=True)
    choices = Choices(
        record=record,
        yes=options.yes,
        full=options.full,
        model=options.model,
        base_url=options.base_url,
        interactive=terminal(sys.stdin) and terminal(sys.stderr if options.json else sys.stdout),
    )
    code = play(choices, Page(highlight=False, markup=False, stderr=options.json))
    if options.json:
        put(json_line({"record": record, "code": code}))
    return code


@command(RunOptions, example='gesta run agent.py:agent "What do I need in Rome?"')
def run(options: RunOptions) -> int:
    """Send a task to an agent, and see its answer as it comes.

    The answer goes to standard output; calls, results and questions go to standard error. Exit codes: 0 answered, 1
    failed, 2 wrong usage, 3 waits for a person, 4 limit or budget, 5 outcome of a call unknown, 130 interrupted.
    """
    from gesta.cli.driving import work
    from gesta.cli.voice import Voice

    message: list[str | Part] = [_text(options.text), *(_file(path) for path in options.file or ())]
    job = _job(options, options.agent, new=True)
    return work(
        job,
        Voice(as_json=options.json),
        lambda record, listener: record.run(
            job.agent, message, session=options.session, key=options.key, user=options.user, listener=listener
        ),
    )


@command(ResumeOptions, example="gesta resume last agent.py:agent")
def resume(options: ResumeOptions) -> int:
    """Continue a run that was interrupted or waited.

    Work that was done is not repeated. A call whose outcome is unknown is repeated only if its tool declares that this
    does no harm.
    """
    from gesta.cli.driving import work
    from gesta.cli.voice import Voice

    job = _job(options, options.agent)
    run, head = _found(job, options.run)
    return work(
        job,
        Voice(as_json=options.json, run=run, after=head),
        lambda record, listener: record.resume(run, job.agent, listener=listener),
    )


def _found(job: "Job", name: str) -> tuple[str, int]:
    """Return the id of the run to resume, and the seq of its last entry.

    Print a note if the last turn of the run has ended. Raises Stop if another agent began the run.
    """
    import anyio

    from gesta.address import open_record
    from gesta.cli.waits import find as look_up

    async def find() -> tuple[str, int]:
        async with open_record(job.record, readonly=True) as record:
            found = await look_up(record, name)
            row, turn = found.row, found.state.turn
            if row.name != job.agent.name:
                raise Stop(
                    f"Run {row.run} was begun by agent {row.name!r}, and {job.address} is agent {job.agent.name!r}. "
                    f"Name the one that began it: {job.command('resume', row.run, f' {quoted(found.hint)}')}"
                )
            if turn is not None and turn.reason is not None:
                say(f"Nothing is open in run {row.run}; its last turn ended with: {turn.reason}.", DIM)
            return row.run, row.head

    return anyio.run(find)


def _text(given: str | None) -> str:
    """Return the task from the command line, or from standard input if input is piped or the task is `-`.

    Raises Stop for an empty task.
    """
    if given is not None and given != "-":
        text = given
    elif given == "-" or not terminal(sys.stdin):
        text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").rstrip("\n")
    else:
        text = ""
    if not text.strip():
        raise Stop('There is no task. Write it after the agent, as in: gesta run agent.py:agent "What is new?"')
    return text


def _file(path: str) -> "Part":
    """Return a file as a part of a message. Raises Stop if the file cannot be read."""
    from gesta.message import attached

    try:
        return attached(path)
    except OSError as error:
        raise Stop(
            f"Cannot send {path!r} with the message: {error.strerror or error}. Name a file that can be read."
        ) from error


def _job(options: RunOptions | ResumeOptions, address: str, *, new: bool = False) -> "Job":
    from gesta.cli.driving import Job
    from gesta.cli.loading import load_all, with_model, with_servers

    found, approver = load_all([address])
    (agent,) = with_servers(found, options.mcp)
    agent, record = with_model(agent, options.model, options.base_url), options.target(new=new)
    named, yes, json = options.named, options.yes, options.json
    servers = "".join(f" --mcp {quoted(each)}" for each in options.mcp or ())
    return Job(
        agent=agent,
        address=address,
        record=record,
        named=named,
        yes=yes,
        json=json,
        approver=approver,
        servers=servers,
    )


@command(WorkOptions, example="gesta work agent.py:agent --once")
def work(options: WorkOptions) -> None:
    """Continue every turn that is due, until it is stopped.

    A turn is due if it was interrupted, if a person has answered it, or if its time has come. Several workers may work
    on one record.
    """
    from gesta.cli import working

    raise SystemExit(working.work(options))
