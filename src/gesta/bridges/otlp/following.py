"""Reads a record from a stored place onwards, and sends its spans until the receiver has accepted them.

Memory holds only the open turns and one batch of spans: while a receiver does not answer, the record is not read
further. Only one exporter at a time sends a record to an endpoint. To ensure this, the exporter holds a lease (a lock
in the store) under the name of a run that does not exist; other exporters wait for that lease. The place is the
position of the last entry whose spans were all sent.
"""

import hashlib
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime
from typing import Any

import anyio
from msgspec import Struct

from gesta.bridges.otlp.encoding import EPOCH, attributes, metrics, span_message, traces
from gesta.bridges.otlp.folding import Folding
from gesta.bridges.otlp.metrics import Meter
from gesta.bridges.otlp.place import Place, load, place_file, save
from gesta.bridges.otlp.sending import Sender, Sent
from gesta.bridges.otlp.settings import MOST_ASKED_S, MOST_WAIT_S, Settings, TracingError
from gesta.entry import Row, run_id
from gesta.errors import BrokenRecord, GestaError, NewerRecord, RunHeld, WriteFailed, message_of
from gesta.events import LOGGER
from gesta.log.journal import Clock, entry_of, utc_now
from gesta.state.opening import shielded
from gesta.store import Lease, Store

BATCH, BATCH_CHARS = 500, 1_000_000
"""A batch is sent when it has this many spans, or this many characters of text."""
ROWS = 5000
"""Number of entries without any span to send, after which the place is stored nevertheless."""
TRIES = 6
"""Greatest number of tries to send a message in `once`. The number is not limited in `follow`."""
STAND_BY_S = 1.0
"""Seconds between two checks whether another exporter has ended."""


class Counts(Struct):
    """Counts of what an exporter has done so far."""

    sent: int = 0
    """Number of spans that the receiver accepted."""
    rejected: int = 0
    """Number of spans that the receiver refused, so that they are not sent again."""
    left_out: int = 0
    """Number of spans that were not sent, because they were not sampled or the settings have no address for spans."""
    tries: int = 0
    """Number of times that a message was sent again."""


class Exporter:
    """Sends the spans and metrics of one record to one endpoint."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        place: str | os.PathLike[str] | None = None,
        *,
        told: Callable[[str], None] = LOGGER.warning,
        clock: Clock = utc_now,
    ) -> None:
        """Prepare to send; nothing is read or sent yet.

        Args:
            place: file that stores how far the record was sent; by default a file for this record and this endpoint.
            told: called with a sentence when the receiver stops answering, when it answers again, and for refused
                spans.
        """
        self.counts = Counts()
        self._store, self._settings, self._told, self._clock = store, settings, told, clock
        self._endpoint = settings.traces or settings.metrics
        self._file = place_file(store, self._endpoint, place)
        self._place = Place(record=store.info.id)
        self._meter = Meter()
        self._told_points = 0
        self._away = False
        self._held: list[dict[str, Any]] = []
        self._size = 0
        self._until: int | None = None
        self._reached = anyio.Event()

    async def follow(self) -> None:
        """Send the entries on record, then new entries as they appear. Returns when the record is closed.

        Raises:
            TracingError: the file of the stored place cannot be read or written.
        """
        wait_s = self._settings.wait_s
        while True:
            try:
                await self._follow(once=False)
                return
            except TracingError:
                raise
            except GestaError as failure:  # for example the database server restarts
                self._lost(f"the record cannot be read: {message_of(failure)}")
                await anyio.sleep(wait_s)
                wait_s = min(2 * wait_s, MOST_WAIT_S)

    async def once(self) -> Counts:
        """Send the spans that are on record now, and return the counts.

        Raises:
            TracingError: the receiver refuses this client, or did not accept a message in `TRIES` tries. Or the file of
                the stored place cannot be read or written. Or another exporter sends this record to the endpoint.
        """
        await self._follow(once=True)
        return self.counts

    async def drain(self, timeout_s: float) -> bool:
        """Wait until the receiver has accepted all spans that are on record now, at most `timeout_s` seconds.

        Returns whether all were accepted. Returns `False` at once while the receiver does not answer.
        """
        self._until = await self._store.last()
        self._arrive(self._place.pos)
        with anyio.move_on_after(timeout_s):
            while not self._reached.is_set() and not self._away:
                with anyio.move_on_after(0.1):
                    await self._reached.wait()
        return self._reached.is_set()

    async def _follow(self, *, once: bool) -> None:
        async with Sender(self._settings) as sender, self._leased(once=once):
            await self._load()
            folding = Folding(
                self._store, content=self._settings.content, ratio=self._settings.ratio, heeds=self._settings.heeds
            )
            last = await self._store.last() if once else None
            failure: GestaError | None = None
            async with anyio.create_task_group() as tasks:
                if not once:
                    tasks.start_soon(self._meters, sender)
                try:
                    if last is None or self._place.pos < last:
                        await self._read(sender, folding, last)
                except GestaError as raised:  # raised below, so that the task group does not wrap it
                    failure = raised
                tasks.cancel_scope.cancel()
            if failure is not None:
                raise failure
            await self._send_metrics(sender)

    async def _read(self, sender: Sender, folding: Folding, last: int | None) -> None:
        """Make spans of the entries after the stored place, and send them.

        Args:
            folding: makes spans of entries.
            last: position in the record after which to stop; `None` to go on without end.
        """
        rows = 0
        async with aclosing(self._store.tail(self._place.pos)) as tail:
            async for page in tail:
                for row in page:
                    await self._take(folding, row)
                    rows += 1
                    if len(self._held) >= BATCH or self._size >= BATCH_CHARS:
                        await self._flush(sender, row, once=last is not None)
                        rows = 0
                if self._held or rows >= ROWS or (last is not None and page and page[-1].pos >= last):
                    await self._flush(sender, page[-1], once=last is not None)
                    rows = 0
                if page:
                    self._arrive(page[-1].pos)
                if last is not None and page and page[-1].pos >= last:
                    return

    def _arrive(self, pos: int) -> None:
        if self._until is not None and pos >= self._until:
            self._reached.set()

    async def _take(self, folding: Folding, row: Row) -> None:
        try:
            spans, sampled = await folding.add(await entry_of(self._store, row))
        except (BrokenRecord, NewerRecord) as error:  # another try would fail too
            self._told(f"Entry {row.run}.{row.seq} is in no trace: {message_of(error)}")
            return
        for span in spans:
            self._meter.add(span)
            if sampled and self._settings.traces:
                message = span_message(span)
                self._held.append(message)
                self._size += sum(len(each["value"].get("stringValue", "")) + 40 for each in message["attributes"])
            else:
                self.counts.left_out += 1

    async def _flush(self, sender: Sender, row: Row, *, once: bool) -> None:
        """Send the spans in memory, and store the position of the entry `row` as the new place.

        `once` says whether to raise TracingError if the receiver does not accept them.
        """
        await self._deliver(sender, self._held, once=once)
        self._held, self._size = [], 0
        self._place.pos, self._place.digest = row.pos, row.digest.hex()
        save(self._file, self._place, self._meter.points)

    async def _deliver(self, sender: Sender, spans: list[dict[str, Any]], *, once: bool) -> None:
        """Send spans until they are accepted. If a message is refused, send its halves, down to single spans.

        Raises TracingError if `once` is set and the receiver does not accept them.
        """
        wait_s, resource, tries = self._settings.wait_s, attributes(self._settings.resource), 0
        while spans:
            sent = await sender.send("traces", traces(spans, resource))
            if sent.what == "taken":
                self._found(sent, len(spans))
                return
            if sent.what == "refused" and len(spans) > 1:
                half = len(spans) // 2
                await self._deliver(sender, spans[:half], once=once)
                spans = spans[half:]
                continue
            if sent.what == "refused":
                self.counts.rejected += 1
                self._told(f"The receiver of traces does not take span {spans[0]['spanId']}: {sent.why}.")
                return
            tries += 1
            if once and tries == TRIES:
                raise TracingError(
                    f"{_shown(self._endpoint)} did not take them: {sent.why}. Nothing is lost: send them again later."
                )
            if once and sent.what == "closed":
                raise TracingError(
                    f"{_shown(self._endpoint)} does not take traces: {sent.why}. Check address and headers."
                )
            self._lost(f"{_shown(self._endpoint)} does not take them: {sent.why}")
            self.counts.tries += 1
            await anyio.sleep(max(min(sent.wait_s or 0.0, MOST_ASKED_S), wait_s * random.uniform(0.8, 1.2)))  # noqa: S311 - no secret
            wait_s = min(2 * wait_s, MOST_WAIT_S)

    def _found(self, sent: Sent, spans: int) -> None:
        if self._away:
            self._away = False
            self._told("Traces are taken again.")
        rejected = min(max(sent.rejected, 0), spans)  # the receiver may say any number
        self.counts.sent += spans - rejected
        self.counts.rejected += rejected
        if rejected:
            self._told(f"The receiver of traces did not take {rejected} of {spans} spans: {sent.why}.")

    def _lost(self, why: str) -> None:
        if not self._away:
            self._away = True
            self._told(f"Traces wait: {why}. Nothing is lost; they are sent as soon as that is over.")

    async def _meters(self, sender: Sender) -> None:
        while True:
            await anyio.sleep(self._settings.every_s)
            await self._send_metrics(sender)

    async def _send_metrics(self, sender: Sender) -> None:
        """Send the metrics if they changed.

        A failure is ignored, because the next message has the sums from the start again.
        """
        points = self._meter.points
        total = sum(each.count for each in points)
        if not self._settings.metrics or total == self._told_points:
            return
        since = datetime.fromtimestamp(self._place.since, EPOCH.tzinfo)
        message = metrics(points, attributes(self._settings.resource), since, self._clock())
        sent = await sender.send("metrics", message)
        if sent.what != "later":  # a refused message is not repeated until there is news
            self._told_points = total

    async def _load(self) -> None:
        """Read the stored place. If the record has another entry at that place, begin at the record's first entry."""
        self._held, self._size = [], 0
        place = load(self._file, self._store.info.id)
        if place.pos and not await self._fits(place):
            self._told("The record is not the one that was sent before, as after a restored backup: it is sent anew.")
            place = Place(record=self._store.info.id)
        if not place.since:
            place.since = self._clock().timestamp()
        self._place, self._meter = place, Meter(place.points)

    async def _fits(self, place: Place) -> bool:
        if place.pos > await self._store.last():
            return False
        async with aclosing(self._store.tail(place.pos - 1)) as tail:
            async for rows in tail:
                found = rows[0] if rows else None
                return found is None or found.pos != place.pos or found.digest.hex() == place.digest
        return True

    @asynccontextmanager
    async def _leased(self, *, once: bool) -> AsyncIterator[None]:
        """Hold the lease for sending this record to the endpoint.

        If another exporter has the lease, wait until it is free; if `once` is set, raise TracingError instead.
        """
        name = hashlib.sha256(self._endpoint.encode()).hexdigest()[:8]
        run = run_id(self._store.info.id, "gesta", f"traces {name}")
        lease: Lease | None = None
        while lease is None:
            try:
                lease = await self._store.lease(run)
            except WriteFailed:  # a record opened for reading has no leases
                break
            except RunHeld:
                if once:
                    raise TracingError(
                        f"Another exporter sends this record to {_shown(self._endpoint)}: what is missing there comes "
                        "from it."
                    ) from None
                await anyio.sleep(STAND_BY_S)
        try:
            yield
        finally:
            if lease is not None:
                with shielded(), suppress(GestaError):
                    await self._store.release(lease)


def _shown(address: str) -> str:
    """Return an address without its query and its credentials."""
    base = address.partition("?")[0]
    scheme, _, rest = base.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
