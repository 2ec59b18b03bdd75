"""The data of the pages about what a run sent to its model: the list of its requests, and one request in detail.

A record does not store the body of a request. The body is rebuilt from the entries before the request. A formatter
turns entries into messages; an encoder turns messages into the JSON of a provider. The messages and the body are sent
to the page in parts. In the methods, `name` names a run, and `wanted` names one request of the run.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from anyio import Lock, to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from gesta.address import FORMATTERS, Record
from gesta.cli.talk import json_harmless
from gesta.compare.requests import Wanted, compared, model_of, request_facts
from gesta.entry import Entry
from gesta.errors import BadAddress
from gesta.kinds import Kind
from gesta.log.journal import read
from gesta.message import part_text
from gesta.models.providers import DIALECTS, PROVIDERS
from gesta.prompt import numbers_in_hex
from gesta.serve.bodies import Refused
from gesta.views.exchanges import Exchanges, ExchangesView
from gesta.views.losses import LOSSES
from gesta.views.sent import Sent, encoding, message_text
from gesta.views.sent_changes import Difference, brief_facts

READ = 2000
"""Number of entries read at once; between these reads other requests are answered."""
KEPT_LISTS, KEPT_REQUESTS = 8, 2
"""Number of runs whose list of requests is kept in memory, and number of rebuilt requests that are kept."""
TEXT = 2000
"""Greatest number of characters of a message that are sent at first. The rest is sent when a person asks for it."""
PART = 40_000
"""Greatest number of characters of a body in one answer."""
STEPS = 200
"""Greatest number of changed messages in one answer."""
UNSAID = "tool-calls"
"""The formatter for a request that is not on record, for example in an imported run."""
ENCODER = "chat-completions/1"
"""The encoder used if the encoder of a request is not known here."""


class Listed(Struct):
    """The list of the requests of one run, up to the last entry that was read."""

    exchanges: Exchanges = field(default_factory=Exchanges)
    lock: Lock = field(default_factory=Lock)


class Made(NamedTuple):
    """A rebuilt request, and how it differs from the request before it."""

    wanted: Wanted
    found: Difference
    facts: dict[str, Any]

    @property
    def one(self) -> Sent[Any]:
        """The rebuilt request itself."""
        return self.found.one


class SentPages:
    """Rebuilds and keeps the model requests of the runs of one record."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._lists: OrderedDict[str, Listed] = OrderedDict()
        self._kept: OrderedDict[tuple[str, Wanted], Made] = OrderedDict()
        self._shown: tuple[Made, dict[str, Any], str] | None = None
        """The last request that was shown as its provider gets it; a page asks for its body part by part."""
        self._lock = Lock()

    async def requests(self, name: str, after: int, limit: int) -> dict[str, Any]:
        """Return some requests of a run, in order, and the number of all its requests.

        Args:
            after: number of requests to skip.
            limit: greatest number of requests to return.
        """
        every = (await self._exchanges((await self.record.find(name)).run)).every
        return {"requests": every[after : after + limit], "total": len(every)}

    async def _exchanges(self, run: str) -> Exchanges:
        """Return the list of a run's requests, after reading the entries that are new since the last call."""
        listed = self._lists.setdefault(run, Listed())
        self._lists.move_to_end(run)
        while len(self._lists) > KEPT_LISTS:
            self._lists.popitem(last=False)
        view = ExchangesView()
        async with listed.lock:
            while entries := await read(self.record.store, run, listed.exchanges.last, limit=READ):
                for entry in entries:
                    view.apply(listed.exchanges, entry)
        return listed.exchanges

    async def request(self, name: str, wanted: Wanted) -> dict[str, Any]:
        """Return the facts about one request, and how its messages differ from those of the request before it."""
        run = (await self.record.find(name)).run
        made, every = await self.made(run, wanted), (await self._exchanges(run)).every
        seq, number = made.one.seq, len(made.one.request.blocks)
        place = next((n for n, each in enumerate(every) if each.seq + (not each.on_record) == seq), None)
        own = every[place] if place is not None else None
        steps = [_step(step, made.found) for step in made.facts["steps"][:STEPS]]
        return made.facts | {
            "run": run,
            "place": place,
            "total": len(every),
            "exchange": own,
            "tokens": own.tokens if own is not None else None,
            "earlier": every[place - 1].seq if place else None,
            "later": every[place + 1].seq if place is not None and place + 1 < len(every) else None,
            "model": model_of(made.one, made.wanted),
            "form": made.wanted.form,
            "anew": made.wanted.anew or made.wanted.whole,
            "digest": made.one.request.digest,
            "messages": number,
            "tools": len(made.one.header.tools or ()),
            "steps": steps,
            "steps_total": len(made.facts["steps"]),
            "lost": [{"name": each, "number": lost, "text": LOSSES[each]} for each, lost in made.one.lost.items()],
        }

    async def made(self, run: str, wanted: Wanted) -> Made:
        """Return a rebuilt request. For an entry that is not a request, return the request that would be sent after it.

        Raises:
            Refused: there is no such entry, formatter or provider.
        """
        async with self._lock:
            if (run, wanted) not in self._kept:
                until = wanted.entry or 0
                entries = list[Entry]()
                while (after := entries[-1].seq if entries else 0) < until:
                    if not (page := await read(self.record.store, run, after, until, READ)):
                        break
                    entries += page
                if not entries or entries[-1].seq != until:
                    raise Refused(404, "NoEntry", f"Run {run} has no entry {wanted.entry}.")
                self._kept[run, wanted] = await to_thread.run_sync(_made, entries, wanted)
                while len(self._kept) > KEPT_REQUESTS:
                    self._kept.popitem(last=False)
            self._kept.move_to_end((run, wanted))
            return self._kept[run, wanted]

    async def header(self, name: str, wanted: Wanted) -> dict[str, Any]:
        """Return the tools, the output schema, and the settings (model, instructions and more) of a request."""
        header = (await self.made((await self.record.find(name)).run, wanted)).one.header
        return {"tools": header.tools or [], "output": header.output, "meta": header.meta or {}}

    async def messages(self, name: str, wanted: Wanted, after: int, limit: int) -> list[dict[str, Any]]:
        """Return some messages of a request, with long texts cut.

        Args:
            after: number of messages to skip.
            limit: greatest number of messages to return.
        """
        one = (await self.made((await self.record.find(name)).run, wanted)).one
        return [_message(one, place) for place in range(len(one.request.blocks))[after : after + limit]]

    async def message(self, name: str, wanted: Wanted, place: int, *, before: bool) -> dict[str, Any]:
        """Return `{"text": …}` with the whole text of the message with the index `place`, from 0.

        Raises Refused if the request has no such message.


        Args:
            before: whether to return a message of the run's previous request instead.
        """
        found = (await self.made((await self.record.find(name)).run, wanted)).found
        one = found.before if before else found.one
        if one is None or place >= len(one.request.blocks):
            raise Refused(404, "NoMessage", f"The request has no message {place}.")
        return {"text": message_text(one.message(place))}

    async def wire(self, name: str, wanted: Wanted, after: int) -> dict[str, Any]:
        """Return facts about one request in its provider's format, and a part of its body as indented JSON.

        Args:
            after: number of characters of the indented body that the page already has.
        """
        made = await self.made((await self.record.find(name)).run, wanted)
        if self._shown is None or self._shown[0] is not made:
            self._shown = made, *await to_thread.run_sync(_indented, made)
        _, facts, body = self._shown
        return facts | {"body": body[after : after + PART], "characters": len(body)}

    async def body(self, name: str, wanted: Wanted) -> bytes:
        """Return the exact bytes of the body of a request."""
        return (await self.made((await self.record.find(name)).run, wanted)).one.request.body()


def ways() -> dict[str, Any]:
    """Return the choices on a page: the names of the formatters, and the providers for each dialect (form of body)."""
    dialects = [
        {"name": name, "providers": [each.name for each in PROVIDERS.values() if each.speaks == speaks]}
        for speaks, name in DIALECTS.items()
    ]
    return {"forms": FORMATTERS, "dialects": dialects}


def _made(entries: Sequence[Entry], wanted: Wanted) -> Made:
    """Return the request that `wanted` names, rebuilt from the entries of its run.

    A default formatter (`UNSAID`) is used if the request is not on record, or its own formatter is unknown here. A
    default encoder (`ENCODER`) is used if its own encoder is unknown here.

    Raises Refused if `wanted` names an unknown request, formatter or model.
    """
    own = any(entry.kind is Kind.Request for entry in entries)
    ways = [wanted] if own or wanted.anew else []
    ways += [replace(wanted, form=UNSAID)] if wanted.form is None else []
    ways += [replace(way, encoder=ENCODER) for way in ways[-1:] if way.model is None]
    failures = list[BadAddress]()
    for way in ways:
        try:
            found = compared(entries, way)
        except BadAddress as error:
            failures.append(error)
            continue
        unknown = encoding(entries, found.one.seq).formatter if failures else None
        return Made(way, found, brief_facts(found, entries) | {"unknown_form": unknown})
    raise Refused(400, "BadAddress", str(failures[0])) from failures[0]


def _indented(made: Made) -> tuple[dict[str, Any], str]:
    """Return what a page shows of a request: everything but its body as a dict, and its body as indented JSON."""
    facts = request_facts(made.one, made.wanted)
    return facts, json_harmless(json.dumps(facts.pop("body"), indent=2, ensure_ascii=False))


def _step(step: dict[str, Any], found: Difference) -> dict[str, Any]:
    """Return one difference between two requests as JSON: a message and, if it was changed, its earlier form."""
    place, was = step.get("place"), step.get("was")
    told = dict(step)
    if place is not None:
        told["message"] = _message(found.one, place)
    if was is not None and found.before is not None and step["change"] in ("changed", "gone"):
        told["before"] = _message(found.before, was)
    return told


def _message(one: Sent[Any], place: int) -> dict[str, Any]:
    """Return the message with the index `place` in a request, as JSON for the page, with long texts cut."""
    shown, message = one.shown[place], one.message(place)
    calls = [{"name": call.name, "args": numbers_in_hex(call.args)} for call in message.calls]
    large = len(repr(calls)) > TEXT
    return {
        "place": place,
        "role": message.role,
        "sources": shown.sources,
        "text": message.text[:TEXT],
        "characters": len(message.text),
        "more": len(message.text) > TEXT or large,
        "calls": [{"name": call["name"]} for call in calls] if large else calls,
        "parts": [part_text(part)[:TEXT] for part in message.parts],
        "tool": message.name or shown.tool,
        "failed": message.failed,
        "bytes": len(one.request.blocks[place]),
    }
