"""Live tracing in a program: an open record's new runs are sent to an OpenTelemetry receiver.

async with gesta.open("shop.gesta") as record, tracing(record, "http://127.0.0.1:4318"):
    ...

A span is a step of a run with its start and end, in OpenTelemetry's form.
"""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio

from gesta.bridges.otlp.following import Exporter
from gesta.bridges.otlp.settings import TracingError, settings
from gesta.errors import GestaError, message_of
from gesta.events import LOGGER
from gesta.record.record import Record

GRACE_S = 5.0
"""Seconds for which the end of the block waits for the receiver. Spans that are left are sent by the next exporter."""


@asynccontextmanager
async def tracing(
    record: Record,
    endpoint: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    content: bool | None = None,
    sample: float | None = None,
    place: str | os.PathLike[str] | None = None,
) -> AsyncIterator[Exporter | None]:
    """Send the spans of a record while the block runs: first those not sent yet, then new ones as they appear.

    Args:
        endpoint: base address of the receiver; by default OTEL_EXPORTER_OTLP_ENDPOINT. If neither is set, nothing is
            sent and the block gets `None`.
        headers: headers of each request, in addition to those of OTEL_EXPORTER_OTLP_HEADERS. Header values are secrets:
            the values appear in no log, error or record.
        content: whether spans contain the texts of messages, calls and results; by default as
            OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says, otherwise not.
        sample: the share of root runs that are sent, from 0 to 1; by default as OTEL_TRACES_SAMPLER says, otherwise
            all.
        place: the file in which the exporter stores how far the record was sent.

    Raises:
        TracingError: a setting is wrong.
    """
    found = settings(endpoint, headers=headers, content=content, sample=sample)
    if found is None:
        yield None
        return
    exporter = Exporter(record.store, found, place)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_follow, exporter)
        try:
            yield exporter
        finally:
            with anyio.CancelScope(shield=True):
                await _drained(exporter)
            tasks.cancel_scope.cancel()


async def _follow(exporter: Exporter) -> None:
    """Run an exporter until it ends. An error in the exporter is logged and ends tracing. The agents go on."""
    try:
        await exporter.follow()
    except TracingError as failure:
        LOGGER.warning("Tracing ended: %s", message_of(failure))
    except Exception:  # noqa: BLE001 - an error of tracing must not stop the agents
        LOGGER.exception("Tracing ended. Please report this; what is on record can be sent later, by `gesta trace`")


async def _drained(exporter: Exporter) -> None:
    try:
        if not await exporter.drain(GRACE_S):
            LOGGER.warning("Not all traces were taken. `gesta trace --once` sends the rest, or the next exporter does.")
    except GestaError as failure:
        LOGGER.warning("Tracing ended: %s", message_of(failure))
