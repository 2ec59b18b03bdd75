"""Exports runs as lines of OTLP's JSON, one message a line, as OpenTelemetry's file exporters write them.

Source: "OpenTelemetry Protocol File Exporter", OpenTelemetry specification 1.56, read 2026-11.
"""

import os
from collections.abc import AsyncIterator

from gesta.bridges.otlp.encoding import as_json, attributes, span_message, traces
from gesta.bridges.otlp.folding import Folding
from gesta.bridges.otlp.settings import resource_of
from gesta.record.record import Record
from gesta.store import below

SPANS = 200
"""Greatest number of spans in one line."""


async def export(record: Record, run: str | None, *, content: bool) -> AsyncIterator[str]:
    """Yield lines with the ended spans of a run and of its child runs at any depth, or of all runs.

    Args:
        run: id of the run; `None` for all runs of the record.
        content: whether spans contain the texts of messages, calls and results.
    """
    rows = await record.store.runs()
    wanted = {row.run for row in rows} if run is None else below([run], rows)
    held, told = [], attributes(resource_of(os.environ))
    for row in rows:
        if row.run not in wanted:
            continue
        async for span in Folding(record.store, content=content).run(row.run):
            held.append(span_message(span))
            if len(held) == SPANS:
                yield as_json(traces(held, told)).decode() + "\n"
                held = []
    if held:
        yield as_json(traces(held, told)).decode() + "\n"
