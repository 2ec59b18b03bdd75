"""Rebuilds the requests of a run, either as they were sent, or with another formatter or model.

A record does not store the body of a request. A formatter turns the entries before the request into messages, and the
encoder of a model turns the messages into JSON.
"""

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from gesta.address import FORMATTERS, formatter
from gesta.entry import Entry
from gesta.errors import BadAddress, BrokenRecord
from gesta.models.hosted import recorded, unsent
from gesta.models.http import HttpModel, Secret
from gesta.models.providers import PROVIDERS
from gesta.prompt import Formatter
from gesta.state.run import UNFIT
from gesta.text.redactor import SECRETS
from gesta.views.sent import Asked, Sent, earlier, encoding, header_before, request_of, sent
from gesta.views.sent_changes import Difference, difference


class Wanted(Struct, frozen=True, kw_only=True):
    """The choice of a request to rebuild, and of the formatter and the model to use."""

    entry: int | None = None
    """Seq of the request, or of an entry after it; `None` for the last request."""
    form: str | None = None
    """Name of the formatter to use in place of the recorded one."""
    model: str | None = None
    """Model to use in place of the recorded one, as `provider:model`."""
    encoder: str | None = None
    """Encoder to use in place of a recorded one that is not known here; ignored if a model is named."""
    whole: bool = False
    """Whether the messages that a compaction hides from the model are included too."""

    @property
    def anew(self) -> bool:
        """Whether the request is built with another formatter or model than the recorded one."""
        return self.form is not None or self.model is not None


def remade(entries: Sequence[Entry], wanted: Wanted) -> Sent[HttpModel]:
    """Return a request, rebuilt from the entries of its run.

    Raises:
        BadAddress: there is no such request, formatter or provider, or the recorded encoder is not known here.
        BrokenRecord: an entry has a member of the wrong type.
    """
    return _sent(entries, request_of(entries, wanted.entry, anew=wanted.anew), wanted)


def compared(entries: Sequence[Entry], wanted: Wanted) -> Difference:
    """Return how a request differs from the request before it in the run. Both are rebuilt.

    Raises:
        BadAddress, BrokenRecord: as in `remade`.
    """
    one = remade(entries, wanted)
    before = earlier(entries, one.seq)
    return difference(entries, one, _sent(entries, before, wanted) if before is not None else None)


def _sent(entries: Sequence[Entry], seq: int, wanted: Wanted) -> Sent[HttpModel]:
    name, encoder = encoding(entries, seq)
    form = formatter(wanted.form) if wanted.form is not None else _recorded(name)
    own = str(header_before(entries, seq).model or "") if wanted.model is None else ""
    models = [
        unsent(wanted.model, stream=stream)
        if wanted.model is not None
        else recorded(own, wanted.encoder or encoder, stream=stream)
        for stream in (True, False)
    ]
    asked = Asked(seq=seq, form=form, dressed=wanted.form is not None, models=models, whole=wanted.whole)
    try:
        return sent(entries, asked)
    except UNFIT as error:
        raise BrokenRecord(f"request {seq}", f"a member before it is not of its type ({error!r})") from error


def _recorded(name: str) -> Formatter[Any]:
    """Return the formatter with which a request was made, by its recorded name.

    Raises BadAddress if the formatter belongs to the user's own program.
    """
    short = name.partition("/")[0]
    known = [formatter(short)] if short in FORMATTERS else list(map(formatter, FORMATTERS))
    found = [form for form in known if form.name.partition("/")[0] == short]
    if not found:
        raise BadAddress(
            f"The request was made by a formatter of the program's own, {name!r}. Add --as {FORMATTERS[0]}."
        )
    return found[0]


def request_facts(one: Sent[HttpModel], wanted: Wanted) -> dict[str, Any]:
    """Return the rebuilt request `one` as a dict of facts, as `gesta show --wire --json` prints it."""
    wire, reached = one.model.wire(one.request), one.model.provider.name in PROVIDERS
    return {
        "request": one.seq,
        "model": model_of(one, wanted),
        "method": wire.method if reached else None,
        "url": SECRETS.address(wire.url) if reached else None,
        "headers": {name: _header(value) for name, value in wire.headers} if reached else None,
        "body": json.loads(wire.body),
        "digest": one.request.digest,
        "as_sent": one.known,
        "lost": dict(one.lost),
    }


def model_of(one: Sent[HttpModel], wanted: Wanted) -> Any:
    """Return the name of the model for which `one` was built: that in `wanted`, or else the recorded name."""
    return one.model.name if wanted.model else one.header.model


def _header(value: str | Secret) -> str:
    return value if isinstance(value, str) else f"{value.prefix}<{value.name}>"
