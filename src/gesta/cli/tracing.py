"""The command `trace`, and the sending of traces (OpenTelemetry spans) during commands that run agents.

The spans are made from the entries of a record, the store of all runs.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.app import command
from gesta.cli.options import OnRecord
from gesta.cli.talk import DIM, RED, Stop, count, harmless, json_line, put, say
from gesta.errors import AgentError, GestaError, message_of

if TYPE_CHECKING:
    from gesta.record.record import Record

VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@dataclass(frozen=True, kw_only=True)
class TraceOptions(OnRecord):
    """Command-line options of `gesta trace`."""

    file: Annotated[str | None, typer.Argument(metavar="[RECORD]", help="The record.", show_default=False)] = None
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help=f"The receiver; by default {VARIABLES[0]}.", show_default=False),
    ] = None
    once: Annotated[bool, typer.Option("--once", help="Send what is on record now, and end.")] = False
    content: Annotated[
        bool | None,
        typer.Option("--content/--no-content", help="Send what was said, called and answered.", show_default=False),
    ] = None
    sample: Annotated[
        float | None,
        typer.Option(
            "--sample", metavar="SHARE", min=0, max=1, help="Send this share of the runs.", show_default=False
        ),
    ] = None
    place: Annotated[
        str | None,
        typer.Option("--place", metavar="FILE", help="Where it remembers what was sent.", show_default=False),
    ] = None


@command(TraceOptions, example="gesta trace runs.gesta --to http://127.0.0.1:4318 --once")
def trace(options: TraceOptions) -> int:
    """Send runs to an OpenTelemetry receiver, as they come.

    Entries that were not sent yet are sent first. While the receiver cannot be reached, the command waits, and nothing
    is lost. Texts of messages, calls and results are sent only with --content. Headers come from
    OTEL_EXPORTER_OTLP_HEADERS. Ends on Ctrl-C.
    """
    import anyio

    from gesta.address import open_record
    from gesta.bridges.otlp.following import Exporter
    from gesta.bridges.otlp.settings import settings

    if options.to == "":
        raise Stop("--to is empty. Write an address, such as --to http://127.0.0.1:4318.")
    found = settings(options.to, content=options.content, sample=options.sample)
    if found is None:
        raise Stop(f"Say where to: --to http://127.0.0.1:4318, or set {VARIABLES[0]}.")
    address = options.source(options.file)

    async def main() -> None:
        async with open_record(address) as record:
            exporter = Exporter(record.store, found, options.place, told=lambda words: say(harmless(words)))
            if not options.once:
                say(f"Sending the runs of {record.info.address} as they come. Ctrl-C ends it.", DIM)
                await exporter.follow()
                return
            done = await exporter.once()
            if options.json:
                put(json_line({"sent": done.sent, "rejected": done.rejected, "left_out": done.left_out}))
                return
            refused = f", {done.rejected} refused" if done.rejected else ""
            left = f", {done.left_out} not in the sample" if done.left_out else ""
            put(f"{count(done.sent, 'span')} sent{refused}{left}")

    try:
        anyio.run(main)
    except KeyboardInterrupt:
        say("")
    return 0


@asynccontextmanager
async def traced(record: "Record") -> AsyncIterator[None]:
    """Send new spans of a record while the block runs, if an environment variable names a receiver.

    A failure to send is printed, and does not stop the command.
    """
    if not any(os.environ.get(name) for name in VARIABLES):
        yield
        return
    try:
        from gesta.bridges.otlp.settings import settings
        from gesta.bridges.tracing import tracing

        settings()
    except (AgentError, GestaError) as failure:
        say(f"No traces are sent. {message_of(failure)}", RED)
        yield
        return
    async with tracing(record):
        yield
