"""Makes the output of `show`: an entry as it is on record, or a request made again from the entries before it."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from gesta.address import FORMATTERS, formatter
from gesta.cli.layout import fold, page_width, wrap
from gesta.cli.options import ShowOptions
from gesta.cli.pages import heading, reading
from gesta.cli.talk import BOLD, DIM, Stop, count, harmless, json_line, put, put_all, say, styled
from gesta.codec.rows import encode_content
from gesta.entry import Entry, utc_text
from gesta.kinds import ChatCompletionContent, CompactionContent, Kind, RequestContent, RequestHeaderContent
from gesta.message import Message, part_text
from gesta.model.request import Request, native_by
from gesta.model.usage import tokens
from gesta.models.hosted import recorded, unsent
from gesta.models.http import HttpModel, Secret
from gesta.models.providers import PROVIDERS
from gesta.prompt.blocks import Prompt, Shown, header_of, prompt_at
from gesta.prompt.formatter import Formatter
from gesta.record.record import Record
from gesta.text.visible import visible_value
from gesta.views.losses import losses, told

FEW = 4
"""Greatest number of lines that are shown of a message."""
CHANGING = ("model", "instructions", "settings", "output", "prompt", "tools_in")
"""Members of a header's `meta` whose change `--diff` names."""


Made = tuple[tuple[int, ...], bytes]
"""The sources and the block of a message. The key needs both, because one entry may make several messages."""


class Sent(Struct, frozen=True, kw_only=True):
    """A request, made again from the entries."""

    seq: int
    header: RequestHeaderContent
    model: HttpModel
    request: Request
    shown: list[Shown]
    messages: Mapping[Made, Message]
    """The messages from which the blocks of the request were encoded."""
    lost: Mapping[str, int]
    """Number of losses by kind: content of earlier entries that the request does not show in its own form."""
    known: bool
    """Whether the body of the request has the digest on record."""


def show(options: ShowOptions) -> None:
    """Show an entry or a request, as the options say."""

    async def read(record: Record) -> None:
        row = await record.find(options.run)
        entries = await record.read(row.run)
        chosen = next((entry for entry in entries if entry.seq == options.entry), None)
        if options.entry is not None and chosen is None:
            raise Stop(
                f"Run {row.run!r} has {len(entries)} entries; there is no entry {options.entry}. "
                f"Name one from 1 to {len(entries)}."
            )
        if not options.json:
            put(styled(harmless(heading(row)), BOLD, sys.stdout))
            put("")
        anew = options.whole or options.form is not None or options.model is not None
        if options.wire or options.diff or anew or chosen is None:
            seq = request_of(entries, options)
            put_all(_diff(entries, seq, options) if options.diff else _wire(entries, seq, options))
        else:
            put_all(_entry(chosen, as_json=options.json))

    reading(options, read)


def request_of(entries: Sequence[Entry], options: ShowOptions) -> int:
    """Return the seq of the request that an entry is, or that came last before the entry; by default the last request.

    If the run has no request, as after an import, --as and --model show the request that would come next. Raises Stop.
    """
    seq = options.entry
    before = [entry.seq for entry in entries if entry.kind is Kind.Request and (seq is None or entry.seq <= seq)]
    if not before and (options.form is not None or options.model is not None):
        return (seq or len(entries)) + 1
    if not before:
        found = "The run has none" if seq is None else f"None stands before entry {seq}"
        raise Stop(
            f"There is no request to show. {found}; an imported run has only what its source tells, "
            "and the requests of a program are in the runs that it calls."
        )
    return before[-1]


class Overheard:
    """A model that also stores the messages that it encodes."""

    def __init__(self, model: HttpModel) -> None:
        self.name, self.encoder = model.name, model.encoder
        self.messages: dict[Made, Message] = {}
        self._model = model

    def encode(self, message: Message) -> bytes:
        """Return one message as one block, and store the message."""
        block = self._model.encode(message)
        self.messages[message.sources, block] = message
        return block

    def still(self, prompt: Prompt) -> list[Message]:
        """Return the stored messages that are still in the prompt."""
        left = {(shown.sources, block) for shown, block in zip(prompt.shown, prompt.blocks, strict=True)}
        return [message for made, message in self.messages.items() if made in left]


DECIDED = frozenset({Kind.ToolCall, Kind.Question, Kind.Approval, Kind.Answer, Kind.Resolution})
"""Kinds of entries about or by a person's decision. Every character of them is made visible."""


def sent(entries: Sequence[Entry], seq: int, options: ShowOptions) -> Sent:
    """Make a request again. Raises BadAddress if no dialect has the encoder that is on record."""
    asked = [entry for entry in entries if entry.kind is Kind.Request and entry.seq <= seq]
    ways = [block[1] for entry in asked for block in _blocks(entry) if not isinstance(block, str)]
    name, _, encoder = (ways[-1] if ways else "tool-calls/1+chat-completions/1").partition("+")
    header = header_of(entries, seq) if asked else _last_header(entries, seq)
    form = formatter(options.form) if options.form is not None else _recorded_form(name)
    if options.form is not None:
        plain = {name: value for name, value in (header.meta or {}).items() if name != "tools_in"}
        header = form.dress(replace(header, meta=plain))
    for stream in (True, False):
        model = (
            unsent(options.model, stream=stream)
            if options.model is not None
            else recorded(str(header.model or ""), encoder, stream=stream)
        )
        heard = Overheard(model)
        prompt = prompt_at(entries, seq, form, cast("Any", heard), compacted=not options.whole)
        request = prompt.request(header, model.envelope(header), 0)
        content = asked[-1].content if asked else None
        found = Sent(
            seq=seq,
            header=header,
            model=model,
            request=request,
            shown=prompt.shown,
            messages=heard.messages,
            lost=losses([entry for entry in entries if entry.seq < seq], heard.still(prompt), native_by(model)),
            known=isinstance(content, RequestContent) and request.digest == content.body_digest,
        )
        if found.known:
            break
    return found


def _last_header(entries: Sequence[Entry], seq: int) -> RequestHeaderContent:
    """Return the last header before an entry, for a run without requests."""
    found = [entry.content for entry in entries if entry.seq < seq and isinstance(entry.content, RequestHeaderContent)]
    return found[-1] if found else RequestHeaderContent()


def _recorded_form(name: str) -> Formatter[Any]:
    """Return the formatter whose name is on record. Raises Stop."""
    short = name.partition("/")[0]
    known = [formatter(short)] if short in FORMATTERS else list(map(formatter, FORMATTERS))
    found = [form for form in known if form.name.partition("/")[0] == short]
    if not found:
        raise Stop(f"The request was made by a formatter of the program's own, {name!r}. Add --as {FORMATTERS[0]}.")
    return found[0]


def _blocks(entry: Entry) -> list[Any]:
    return entry.content.blocks if isinstance(entry.content, RequestContent) else []


def _entry(entry: Entry, *, as_json: bool) -> Iterable[str]:
    """Return the lines that show one entry."""
    if as_json:
        return [json_line(shown_facts(entry))]
    facts, content = _stamp(entry), json.loads(encode_content(entry.content, None))
    if entry.kind in DECIDED:
        content = visible_value(content)
    told = [f"{key}: {json.dumps(value, ensure_ascii=False, default=str)}" for key, value in facts.items() if value]
    return map(harmless, [*told, *json.dumps(content, indent=2, ensure_ascii=False).split("\n")])


def shown_facts(entry: Entry) -> dict[str, Any]:
    """Return an entry as `gesta show --json` writes it."""
    return {**_stamp(entry), "content": json.loads(encode_content(entry.content, None))}


def _stamp(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "kind": str(entry.kind),
        "at": utc_text(entry.at),
        "span": entry.span,
        "causes": [cause if isinstance(cause, int) else list(cause) for cause in entry.causes],
        "annotations": entry.annotations,
    }


def _wire(entries: Sequence[Entry], seq: int, options: ShowOptions) -> Iterator[str]:
    """Yield the lines of a request as it was sent."""
    one = sent(entries, seq, options)
    facts = request_facts(one, options)
    if options.json:
        yield json_line(facts)
        return
    say(_checked(one, options), None if one.known else BOLD)
    for line in told(one.lost):
        say(f"not shown: {line}", DIM)
    if facts["headers"] is not None:
        yield f"{facts['method']} {facts['url']}"
        yield from (harmless(f"{name}: {value}") for name, value in facts["headers"].items())
        yield ""
    yield from map(harmless, json.dumps(facts["body"], indent=2, ensure_ascii=False).split("\n"))


def request_facts(one: Sent, options: ShowOptions) -> dict[str, Any]:
    """Return a request as `gesta show --wire --json` writes it."""
    wire, reached = one.model.wire(one.request), one.model.provider.name in PROVIDERS
    return {
        "request": one.seq,
        "model": one.model.name if options.model else one.header.model,
        "method": wire.method if reached else None,
        "url": wire.url if reached else None,
        "headers": {name: _header(value) for name, value in wire.headers} if reached else None,
        "body": json.loads(wire.body),
        "digest": one.request.digest,
        "as_sent": one.known,
        "lost": dict(one.lost),
    }


def _header(value: str | Secret) -> str:
    return value if isinstance(value, str) else f"{value.prefix}<{value.name}>"


def _checked(one: Sent, options: ShowOptions) -> str:
    size = f"{count(len(one.request.blocks), 'message')}, {len(one.request.body()):,} bytes"
    head = f"request {one.seq} to {options.model or one.header.model or 'a model that is not named'}: {size}"
    if one.known:
        return f"{head}; the bytes are those whose digest is on record."
    if options.form is not None or options.model is not None:
        return f"{head}, made anew."
    if options.whole:
        return f"{head}, as if nothing had been left out."
    return f"{head}. NOT the bytes that were sent: settings of the model in the program are not on record."


def _diff(entries: Sequence[Entry], seq: int, options: ShowOptions) -> Iterator[str]:
    """Yield the lines that compare a request with the request before it."""
    one = sent(entries, seq, options)
    earlier = [entry.seq for entry in entries if entry.kind is Kind.Request and entry.seq < one.seq]
    before = sent(entries, earlier[-1], options) if earlier else None
    kept = _alike(before.request.blocks if before is not None else [], one.request.blocks)
    changed = _changed(before, one)
    if options.json:
        yield json_line(_facts(entries, one, before, kept) | {"changed": changed})
        return
    for line in told(one.lost) if options.form is not None or options.model is not None else ():
        say(f"not shown: {line}", DIM)
    total = len(one.request.blocks)
    if before is None:
        yield f"request {one.seq}, the first: {count(total, 'message')}"
    else:
        lost = len(before.request.blocks) - kept
        yield f"request {one.seq} after request {before.seq}: {kept} of {total} messages as they were"
        yield from (f"  changed: {name}" for name in changed)
        if lost:
            left_out = _left_out(entries, before.seq, one.seq)
            yield f"  {count(lost, 'message')} of request {before.seq} not repeated{left_out}"
    for shown, block in list(zip(one.shown, one.request.blocks, strict=True))[kept:]:
        yield styled(f"+ {shown.role} from {_listed(shown.sources)}", DIM, sys.stdout)
        lines = wrap(harmless(plain_text(one.messages[shown.sources, block])), page_width() - 4)
        yield from (f"    {line}" for line in fold(lines, FEW))
    yield _cached(entries, one)


def _facts(entries: Sequence[Entry], one: Sent, before: Sent | None, kept: int) -> dict[str, Any]:
    added = zip(one.request.blocks[kept:], one.shown[kept:], strict=True)
    return {
        "request": one.seq,
        "before": before.seq if before is not None else None,
        "kept": kept,
        "added": [
            {"role": shown.role, "sources": list(shown.sources), "block": json.loads(b"[" + block + b"]")}
            for block, shown in added
        ],
        "not_repeated": len(before.request.blocks) - kept if before is not None else 0,
        "tokens": to_builtins(_counted(entries, one.seq)),
        "as_sent": one.known,
        "lost": dict(one.lost),
    }


def _alike(before: Sequence[bytes], now: Sequence[bytes]) -> int:
    """Return how many blocks at the beginning of two requests are equal."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((place for place, (old, new) in pairs if old != new), min(len(before), len(now)))


def _changed(before: Sent | None, one: Sent) -> list[str]:
    """Return the changes before the first message of a request. After any of them the provider's cache is of no use."""
    if before is None or before.request.envelope.head == one.request.envelope.head:
        return []
    old, new = before.header, one.header
    metas = [header.meta or {} for header in (old, new)]
    names = [name for name in CHANGING if metas[0].get(name) != metas[1].get(name)]
    if old.tools != new.tools:
        known = [{tool.get("name"): tool for tool in header.tools or ()} for header in (old, new)]
        told = [f"+{name}" for name in known[1] if name not in known[0]]
        told += [f"-{name}" for name in known[0] if name not in known[1]]
        told += [f"~{name}" for name in known[1] if name in known[0] and known[0][name] != known[1][name]]
        names.append(f"tools ({', '.join(map(str, told)) or 'their order'})")
    if old.output != new.output:
        names.append("output schema")
    return names


def _left_out(entries: Sequence[Entry], after: int, until: int) -> str:
    """Return a text that names the compactions between two requests."""
    found = [each.seq for each in entries if after < each.seq < until and isinstance(each.content, CompactionContent)]
    return f": left out by {_listed(found)}" if found else ""


def _cached(entries: Sequence[Entry], one: Sent) -> str:
    counts = _counted(entries, one.seq)
    if counts is None:
        return "cached: nobody knows; no answer of it with a count of tokens is on record"
    if counts.cache_read is None:
        return f"cached: the provider does not say; it read {counts.input:,} tokens"
    return f"cached: {counts.cache_read:,} of {counts.input:,} tokens that the provider read"


def _counted(entries: Sequence[Entry], seq: int) -> Any:
    """Return the tokens of the answer to a request; `None` if they are not on record."""
    answers = (entry.content for entry in entries if seq in entry.causes)
    return next((tokens(each.usage) for each in answers if isinstance(each, ChatCompletionContent)), None)


def _listed(seqs: Iterable[int]) -> str:
    every = ", ".join(map(str, seqs))
    return f"entry {every}" if "," not in every else f"entries {every}"


def plain_text(message: Message) -> str:
    """Return the text, the parts and the calls of a message."""
    calls = [f"calls {call.name} {json.dumps(call.args, ensure_ascii=False)}" for call in message.calls]
    parts = map(part_text, message.parts)
    return "\n".join([*([message.text] if message.text else []), *parts, *calls])
