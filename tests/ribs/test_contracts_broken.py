"""What breaks the contract of a port fails the sentence that names its fault; what keeps it fails none."""

import json
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gesta.decide.approval import Asked, SignedApprovals, sign
from gesta.entry import Entry
from gesta.errors import ModelFault
from gesta.formatters.json_text import JsonText
from gesta.formatters.tool_calls import UNANSWERED, ToolCalls
from gesta.importers.chat import Chat
from gesta.importers.foreign import Foreign, ForeignEntry, digest_json, each_document
from gesta.importers.format import Format
from gesta.importers.message import said
from gesta.importers.source import BadImport
from gesta.kinds import ApprovalContent, BudgetContent, RequestHeaderContent
from gesta.message import Message
from gesta.model.request import Delta, Envelope, Reply, ReplyCall
from gesta.models.jsontext import exact
from gesta.prompt import observation_text
from gesta.testing import ApproverContract, FormatterContract, ImporterContract, ModelContract


def failing(contract: Any, sentence: str) -> str:
    """Run one sentence; what it says of a fault."""
    try:
        getattr(contract, f"test_{sentence}")()
    except AssertionError as error:
        return str(error)
    return "it passed"


def kept(contract: Any) -> None:
    """Run every sentence."""
    for name in sorted(sentences(type(contract))):
        getattr(contract, name)()


def sentences(contract: type) -> set[str]:
    return {name for name in dir(contract) if name.startswith("test_")}


# ------------------------------------------------------------------------------------------------------- models
class Reading:
    """Reads a reply that is one JSON object."""

    def __init__(self) -> None:
        self.data = b""

    def feed(self, data: bytes) -> Sequence[Delta]:
        self.data += data
        return ()

    def close(self) -> Reply:
        try:
            value = json.loads(self.data)
            return Reply(text=value["text"] + "", native=value["native"])
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise ModelFault("bad-reply", f"It is not a reply: {error}") from error


class Lines:
    """A model of somebody, whose server takes and gives one JSON object."""

    name = "own:lines"
    encoder = "lines/1"

    def encode(self, message: Message) -> bytes:
        own = message.native.items if message.native and message.native.by == "lines/1 own:lines" else None
        calls = [[call.id, call.name, observation_text(call.args)] for call in message.calls]
        return exact({"role": message.role, "text": message.text, "calls": calls, "native": own})

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        return Envelope(b'{"tools":' + exact(header.tools) + b',"messages":[', b",", b"]}")

    async def send(self, _request: Any) -> AsyncGenerator[bytes, None]:
        yield exact({"text": "Hello, 😀.", "native": [1, {"a": 2}]})

    def parser(self) -> Any:
        return Reading()


class Replies(ModelContract):
    def __init__(self, make: Callable[[], Any]) -> None:
        self.make_model = make  # type: ignore[method-assign]


class Counting(Lines):
    numbers = count()

    def encode(self, message: Message) -> bytes:
        return exact([next(self.numbers), super().encode(message).decode()])


class Restless(Lines):
    numbers = count()

    def envelope(self, header: RequestHeaderContent) -> Envelope:
        return replace(super().envelope(header), head=b'{"number":%d,"messages":[' % next(self.numbers))


class Changing(Lines):
    def envelope(self, header: RequestHeaderContent) -> Envelope:
        (header.meta or {})["asked"] = True
        return super().envelope(header)


class Lax(Lines):
    def encode(self, message: Message) -> bytes:
        calls = [[call.id, "NaN" if call.args == {} else float("nan")] for call in message.calls]
        return json.dumps({"role": message.role, "text": message.text, "calls": calls}).encode()


class Sharing(Lines):
    def encode(self, message: Message) -> bytes:
        return exact({"text": message.text, "native": message.native.items if message.native else None})


def parsing(parser: type[Reading]) -> Callable[[], Any]:
    return type("Parsing", (Lines,), {"parser": lambda _self: parser()})


class Tuples(Reading):
    def close(self) -> Reply:
        return replace(super().close(), native=(1, 2))


class Pieces(Reading):
    def feed(self, data: bytes) -> Sequence[Delta]:
        self.data += data.decode(errors="ignore").encode()
        return ()


class Raw(Reading):
    def feed(self, data: bytes) -> Sequence[Delta]:
        super().feed(data)
        return [Delta("text", data.decode(errors="replace"))]


class Careless(Reading):
    def close(self) -> Reply:
        return Reply(text=json.loads(self.data)["text"])


class Trusting(Reading):
    def close(self) -> Reply:
        try:
            value = json.loads(self.data)
        except (ValueError, RecursionError) as error:
            raise ModelFault("bad-reply", "It is not JSON.") from error
        return Reply(text=value["text"])


class Shared(Lines):
    reading = Reading()

    def parser(self) -> Any:
        if self.reading.data.endswith(b"}"):
            self.reading.data = b""
        return self.reading


MODELS: list[tuple[Callable[[], Any], str, str]] = [
    (type("Nameless", (Lines,), {"encoder": "lines"}), "it_has_a_name_and_its_encoder_a_version", "has no version"),
    (Counting, "a_message_has_the_same_block_whatever_came_before_it", "depends on those before it"),
    (Restless, "an_envelope_is_the_same_for_the_same_header", "two envelopes of one header differ"),
    (Changing, "an_envelope_is_the_same_for_the_same_header", "the header was changed"),
    (Restless, "requests_of_a_conversation_extend_each_other", "no prompt cache finds it"),
    (Lax, "any_message_gives_a_body_of_strict_json", "the body of assistant is not JSON (NaN is not JSON)"),
    (Sharing, "what_another_model_wants_back_is_not_sent", "native items of another model are in the body"),
    (parsing(Tuples), "what_it_wants_back_can_be_sent", "not the same after a way through JSON"),
    (parsing(Pieces), "a_reply_is_the_same_however_its_bytes_are_cut", "depends on how its bytes were cut"),
    (parsing(Raw), "what_listeners_hear_is_the_beginning_of_the_reply", "listeners heard"),
    (parsing(Careless), "a_reply_that_ends_early_is_a_fault_or_a_reply", "expected ModelFault or a reply, found JSON"),
    (parsing(Trusting), "what_is_no_reply_is_a_fault", "expected ModelFault or a reply, found TypeError"),
    (Shared, "two_replies_that_are_read_at_once_do_not_mix", "share something"),
]


def test_a_model_of_somebody_keeps_the_contract():
    kept(Replies(Lines))


@pytest.mark.parametrize(("make", "sentence", "words"), MODELS, ids=[row[1] for row in MODELS])
def test_a_broken_model_fails_the_sentence_that_names_it(make: Callable[[], Any], sentence: str, words: str):
    assert words in failing(Replies(make), sentence)


def test_each_sentence_about_models_can_fail():
    assert {f"test_{row[1]}" for row in MODELS} == sentences(ModelContract)


# --------------------------------------------------------------------------------------------------- formatters
class Formats(FormatterContract):
    def __init__(self, make: Callable[[], Any]) -> None:
        self.make_formatter = make  # type: ignore[method-assign]


def changed(change: Callable[[list[Message]], list[Message]]) -> Callable[[], Any]:
    """A formatter whose messages are changed."""

    class Changed(ToolCalls):
        def format(self, entries: Sequence[Entry], state: Any) -> list[Message]:
            return change(super().format(entries, state))

    return Changed


class Choosy(ToolCalls):
    def format(self, entries: Sequence[Entry], state: Any) -> list[Message]:
        if any(isinstance(entry.content, BudgetContent) for entry in entries):
            raise KeyError("budget")
        return super().format(entries, state)


class OneState(ToolCalls):
    state = ToolCalls().start()

    def start(self) -> Any:
        return self.state


class Dresser(ToolCalls):
    def dress(self, header: RequestHeaderContent) -> RequestHeaderContent:
        (header.meta or {})["dressed"] = True
        return header


class Untold(JsonText):
    def dress(self, header: RequestHeaderContent) -> RequestHeaderContent:
        return header


class Hasty:
    """A reader that looks at each piece alone."""

    def __init__(self) -> None:
        self.calls: list[ReplyCall] = []

    def feed(self, text: str) -> list[Delta]:
        self.calls += [ReplyCall("look", text)] if "{" in text else []
        return []

    def close(self, reply: Reply) -> Reply:
        return replace(reply, calls=tuple(self.calls))


class Loose(Hasty):
    def feed(self, text: str) -> list[Delta]:
        return []

    def close(self, reply: Reply) -> Reply:
        return replace(reply, calls=(ReplyCall("look", {"where": "here"}),))  # type: ignore[arg-type]


def reading(reader: Callable[[], Any]) -> Callable[[], Any]:
    return type("Reads", (JsonText,), {"reader": lambda _self: reader()})


NUMBERS = count()
FORMATTERS: list[tuple[Callable[[], Any], str, str]] = [
    (type("Nameless", (ToolCalls,), {"name": "mine"}), "its_name_has_a_version", "has no version"),
    (
        changed(lambda found: [one for one in found if one.text != UNANSWERED]),
        "every_call_has_exactly_one_result_right_after_it_and_in_order",
        "have no result",
    ),
    (
        changed(lambda found: [one for one in found if one.role != "user"]),
        "what_people_said_is_in_a_message",
        "said 'Where is it?'",
    ),
    (
        changed(lambda found: [replace(one, text=one.text * 2) for one in found]),
        "the_model_reads_its_answer_once",
        "told 2 times",
    ),
    (Choosy, "no_entry_raises", "found KeyError('budget'), of entries up to BudgetContent"),
    (
        changed(lambda found: [replace(one, text=f"{next(NUMBERS)} {one.text}") for one in found]),
        "the_same_entries_give_the_same_messages",
        "depend on what was formatted before",
    ),
    (OneState, "two_runs_that_are_formatted_at_once_do_not_mix", "share something"),
    (
        changed(lambda found: [replace(one, sources=()) for one in found]),
        "every_message_says_of_which_entries_it_was_made",
        "names no source",
    ),
    (
        changed(lambda found: [replace(one, role="developer") for one in found]),
        "a_message_is_plain_values",
        "no role is named 'developer'",
    ),
    (Dresser, "a_header_is_dressed_as_a_new_one", "the header itself was changed"),
    (Untold, "a_header_is_dressed_as_a_new_one", "no instructions say how to write them"),
    (reading(Hasty), "words_are_read_the_same_however_they_are_cut", "depends on how its words were cut"),
    (reading(Loose), "calls_that_are_read_from_words_hold_texts", "keep what was written"),
]


@pytest.mark.parametrize(("make", "sentence", "words"), FORMATTERS, ids=[row[1] for row in FORMATTERS])
def test_a_broken_formatter_fails_the_sentence_that_names_it(make: Callable[[], Any], sentence: str, words: str):
    assert words in failing(Formats(make), sentence)


def test_each_sentence_about_formatters_can_fail():
    assert {f"test_{row[1]}" for row in FORMATTERS} == sentences(FormatterContract)


# ---------------------------------------------------------------------------------------------------- importers
TICKET = {"ticket": 7, "talk": [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "Here."}]}


def ticket(document: Any, words: str, oddities: Any) -> Foreign:
    whole = document.value
    talk = whole.get("talk") if isinstance(whole, dict) else None
    if not isinstance(talk, list):
        raise BadImport("tickets", f"expected a list of messages in {words}")
    chat: Any = Chat("desk", oddities)
    names: dict[str, str] = {}
    for place, message in enumerate(talk):
        one = said(message, names, oddities)
        if one is None:
            chat.unreadable(message, place)
        else:
            chat.take(one, place)
    number = whole.get("ticket")
    id = str(number) if isinstance(number, int) and not isinstance(number, bool) and abs(number) < 10**9 else "ticket"
    return Foreign(id=id, name="desk", digest=digest_json(whole), entries=chat.finish("answered", None))


def read(source: Any, oddities: Any) -> Any:
    return each_document(source, oddities, ticket)


def every(change: Callable[[Foreign, Any], None]) -> Callable[..., Any]:
    """A reader whose conversations are changed."""

    def changing(source: Any, oddities: Any) -> Any:
        for one in read(source, oddities):
            change(one, source)
            yield one

    return changing


class Tickets(ImporterContract):
    def __init__(self, read: Callable[..., Any], keys: tuple[str, ...] = ("ticket", "talk")) -> None:
        self.format = Format("desk", "tickets with their talk", "object", keys, read)

    def formats(self) -> list[Format]:
        return [self.format]

    def samples(self) -> dict[str, bytes]:
        return {"tickets.json": json.dumps(TICKET).encode()}


def set_digest(one: Foreign, digest: str) -> None:
    one.digest = digest


def of_file(one: Foreign, source: Any) -> None:
    set_digest(one, digest_json([source.name, one.digest]))


def silent(one: Foreign, _source: Any) -> None:
    one.entries[1:-1] = []
    one.entries[-1] = replace(one.entries[-1], span=1)


def unended(one: Foreign, _source: Any) -> None:
    del one.entries[-1]


def foreseen(one: Foreign, _source: Any) -> None:
    last: ForeignEntry = one.entries[-1]
    one.entries[-1] = replace(last, causes=(len(one.entries) + 1,))


def trusting(source: Any, oddities: Any) -> Any:
    for one in read(source, oddities):
        value = json.loads(Path(source.path).read_text(encoding="utf-8"))
        assert value["talk"][0]["role"] is not None
        value["talk"][1]["content"].strip()
        yield one


def unchecked(source: Any, oddities: Any) -> Any:
    json.loads(Path(source.path).read_bytes())
    return read(source, oddities)


IMPORTERS: list[tuple[Any, str, str]] = [
    (Tickets(read, ("ticket", "chat")), "a_file_is_known_by_its_content", "'tickets.json' has no format here"),
    (
        Tickets(every(lambda one, _: set_digest(one, "7"))),
        "a_conversation_has_a_name_an_agent_and_a_digest",
        "not a SHA-256",
    ),
    (
        Tickets(every(lambda one, _: set_digest(one, digest_json(uuid.uuid4().hex)))),
        "reading_again_gives_the_same",
        "digests of 'tickets.json' change",
    ),
    (Tickets(every(of_file)), "the_name_of_the_file_is_not_part_of_a_conversation", "would come in twice"),
    (Tickets(every(unended)), "spans_nest_and_causes_point_back", "have no end"),
    (Tickets(every(foreseen)), "spans_nest_and_causes_point_back", "is caused by one that is not before it"),
    (
        Tickets(every(lambda one, _: set_digest(one, digest_json(uuid.uuid4().hex)))),
        "a_file_comes_in_once_and_verifies",
        "1 of 1 runs were written, then 1 more",
    ),
    (Tickets(every(silent)), "a_model_can_read_what_was_said", "nothing of conversation"),
    (Tickets(trusting), "no_value_breaks_it", "expected conversations or BadImport, found"),
    (Tickets(unchecked), "no_bytes_break_it", "expected conversations or BadImport, found JSONDecodeError"),
]


def test_an_importer_of_somebody_keeps_the_contract():
    kept(Tickets(read))


@pytest.mark.parametrize(("contract", "sentence", "words"), IMPORTERS, ids=[row[1] for row in IMPORTERS])
def test_a_broken_importer_fails_the_sentence_that_names_it(contract: Any, sentence: str, words: str):
    assert words in failing(contract, sentence)


def test_each_sentence_about_importers_can_fail():
    assert {f"test_{row[1]}" for row in IMPORTERS} == sentences(ImporterContract)


# ---------------------------------------------------------------------------------------------------- approvers
class Approves(ApproverContract):
    def __init__(self, refuses: Callable[[ApprovalContent, Asked], str | None]) -> None:
        self.refuses = refuses

    def make_approver(self) -> Any:
        return self

    def sign(self, approval: ApprovalContent, asked: Asked) -> ApprovalContent:
        return sign(approval, asked, b"a" * 32)


SIGNED = SignedApprovals({"ada": b"a" * 32})


def first_call(approval: ApprovalContent, asked: Asked) -> str | None:
    known = sign(approval, replace(asked, args={"to": "Ada", "amount": 5}), b"a" * 32)
    return None if approval.token == known.token else "no"


def any_answer(approval: ApprovalContent, asked: Asked) -> str | None:
    every = (replace(approval, verdict=verdict, args=None) for verdict in ("approved", "denied"))
    return None if approval.token in {sign(one, asked, b"a" * 32).token for one in every} else "no"


def anybody(approval: ApprovalContent, asked: Asked) -> str | None:
    return SIGNED.refuses(replace(approval, by="ada"), asked)


def in_hex(approval: ApprovalContent, asked: Asked) -> str | None:
    return SIGNED.refuses(replace(approval, token=bytes.fromhex(approval.token or "00").hex()), asked)


APPROVERS: list[tuple[Callable[[ApprovalContent, Asked], str | None], str, str]] = [
    (lambda _approval, _asked: "no", "what_was_signed_counts", "a signed approval is refused"),
    (lambda _approval, _asked: None, "what_nobody_signed_is_refused_in_words", "that nobody signed counts"),
    (lambda _approval, _asked: "", "what_nobody_signed_is_refused_in_words", "without a word"),
    (first_call, "a_token_of_one_call_fits_no_other", "an approval of another call counts"),
    (any_answer, "a_token_of_one_answer_fits_no_other", "counts for ApprovalContent"),
    (anybody, "a_token_of_one_person_fits_no_other", "in the name of somebody else"),
    (in_hex, "no_token_harms_it", "expected a refusal, found ValueError"),
]


@pytest.mark.parametrize(("refuses", "sentence", "words"), APPROVERS, ids=[row[1] for row in APPROVERS])
def test_a_broken_approver_fails_the_sentence_that_names_it(refuses: Any, sentence: str, words: str):
    assert words in failing(Approves(refuses), sentence)


def test_each_sentence_about_approvers_can_fail():
    kept(Approves(SIGNED.refuses))
    assert {f"test_{row[1]}" for row in APPROVERS} == sentences(ApproverContract)
