"""The tests that every model must pass, as the class `ModelContract`. The name of each test is a sentence.

A delta is a piece of a reply's text or thought, to show while the reply arrives.
"""
# ruff: noqa: D102 - the name of a test is its sentence

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import anyio
import msgspec

from gesta.errors import ModelFault
from gesta.kinds import Part, RequestHeaderContent
from gesta.message import Call, Message, Native
from gesta.model.request import Delta, Model, Piece, Reply, Request, native_by

ODD = 'half \ud800 a pair, \x00, \u2028, "quotes"\n\\ud83d 😀'
FOREIGN = "only-for-another-model"
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
HEADER = RequestHeaderContent(
    tools=[
        {
            "name": "look",
            "description": ODD,
            "args_schema": {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]},
        }
    ],
    meta={"instructions": ODD},
)
CALL = Call(id="call_1", name="look", args={"where": ODD, "nan": float("nan"), "deep": DEEP, "many": 10**5000})
MESSAGES = (
    Message(role="system", text=ODD),
    Message(role="user", text=ODD, parts=(Part(type="image", data=b"\x89PNG", media_type="image/png", name="a.png"),)),
    Message(role="user", text="", parts=(Part(type="file", url="https://example.org/a.pdf"), Part(type="text"))),
    Message(role="assistant", text=ODD, calls=(CALL, Call(id="call_2", name="a name of no function", args={}))),
    Message(role="tool", text=ODD, call_id="call_1", name="look"),
    Message(role="tool", text="", call_id="call_2", name="a name of no function", failed=True),
    Message(role="user", text=ODD, name="look", observes=True),
    Message(role="assistant", text=""),
)
"""Messages of each role, with the most unusual values that a formatter returns."""
JUNK: tuple[bytes, ...] = (
    b"",
    b"\n",
    b"null",
    b"[]",
    b"{",
    b"\xff\xfe",
    b"data: {}\n\n",
    b"data: [DONE]\n\n",
    b"<html>Bad Gateway</html>",
)
JUNK += (b'{"choices": 7}', b'{"error": {"message": "no"}}', b"event: error\ndata: {}\n\n", b"data: " + b"[" * 5000)
CUTS = 60
"""Greatest number of places at which a reply is cut in two."""


class ModelContract:
    """The tests that every model must pass. Subclass it and define `make_model`.

    A model that needs a key or a network is tested with recorded replies: return them from `replies`.
    """

    def make_model(self) -> Model:
        """Return a new model."""
        raise NotImplementedError

    def replies(self) -> Sequence[Sequence[Piece]]:
        """Return at least one whole reply, as the list of pieces that `send` yields.

        If not overridden, this method asks the model twice.
        """
        return [self.asked(0), self.asked(1)]

    def asked(self, answered: int) -> list[Piece]:
        """Ask the model one question, and return the pieces of the reply.

        Args:
            answered: number of replies that the model gave before. A scripted model chooses its reply by this number.
        """
        model = self.make_model()
        blocks = [model.encode(Message(role="user", text="Hello."))]
        request = Request(header=HEADER, envelope=model.envelope(HEADER), blocks=blocks, answered=answered)

        async def ask() -> list[Piece]:
            return [piece async for piece in model.send(request)]

        return anyio.run(ask)

    def test_it_has_a_name_and_its_encoder_a_version(self) -> None:
        model = self.make_model()
        assert model.name.isprintable() and model.name, f"the name {model.name!r} is not a line of text"
        name, _, version = model.encoder.partition("/")
        assert name and version, f"the encoder {model.encoder!r} has no version, as in `chat-completions/1`"

    def test_a_message_has_the_same_block_whatever_came_before_it(self) -> None:
        model, other = self.make_model(), self.make_model()
        blocks = [model.encode(message) for message in MESSAGES]
        again = [model.encode(message) for message in reversed(MESSAGES)]
        assert blocks == again[::-1], "a block depends on those before it, so that it cannot be made again"
        assert blocks == [other.encode(message) for message in MESSAGES], "two models of one name encode differently"

    def test_an_envelope_is_the_same_for_the_same_header(self) -> None:
        model = self.make_model()
        header = deepcopy(HEADER)
        assert model.envelope(header) == model.envelope(header), "two envelopes of one header differ"
        assert header == HEADER, "the header was changed"

    def test_any_message_gives_a_body_of_strict_json(self) -> None:
        for message in MESSAGES:
            strict(self.body_of([message]), f"the body of {message.role}")
        strict(self.body_of(MESSAGES), "the body of all messages")

    def test_requests_of_a_conversation_extend_each_other(self) -> None:
        model = self.make_model()
        envelope = model.envelope(HEADER)
        for shorter, longer in pairwise(range(1, len(MESSAGES) + 1)):
            blocks = [model.encode(message) for message in MESSAGES[:shorter]]
            kept = len(self.body_of(MESSAGES[:shorter])) - len(envelope.end(blocks))
            assert self.body_of(MESSAGES[:longer])[:kept] == self.body_of(MESSAGES[:shorter])[:kept], (
                "a request does not begin as the one before it, so that no prompt cache finds it"
            )

    def test_what_another_model_wants_back_is_not_sent(self) -> None:
        native = Native(by="another/1 another:model", items=[{"type": "reasoning", "text": FOREIGN}])
        body = self.body_of([Message(role="assistant", text="Yes.", native=native)])
        assert FOREIGN.encode() not in body, "the native items of another model are in the body"
        assert body == self.body_of([Message(role="assistant", text="Yes.")])

    def test_what_it_wants_back_can_be_sent(self) -> None:
        model = self.make_model()
        for pieces in self.replies():
            reply, _ = self.read(pieces)
            if reply.native is not None:
                items = msgspec.json.decode(msgspec.json.encode(reply.native))
                assert items == reply.native, "native items are not the same after a way through JSON, as on record"
                calls = tuple(Call(id=f"call_{n}", name=call.name, args={}) for n, call in enumerate(reply.calls))
                said = Message(role="assistant", text=reply.text, calls=calls, native=Native(native_by(model), items))
                strict(self.body_of([said]), "the body with native items")

    def test_a_reply_is_the_same_however_its_bytes_are_cut(self) -> None:
        for pieces in self.replies():
            whole, _ = self.read(pieces)
            for cut in cuts(pieces):
                assert self.read(cut)[0] == whole, "a reply depends on how its bytes were cut"

    def test_what_listeners_hear_is_the_beginning_of_the_reply(self) -> None:
        for pieces in self.replies():
            for cut in cuts(pieces):
                reply, deltas = self.read(cut)
                for type_, full in (("text", reply.text), ("thought", reply.thought or "")):
                    heard = "".join(delta.text for delta in deltas if delta.type == type_)
                    assert full.startswith(heard), f"listeners heard {heard!r}, and the {type_} is {full!r}"

    def test_a_reply_that_ends_early_is_a_fault_or_a_reply(self) -> None:
        for pieces in self.replies():
            for cut in cuts(pieces):
                self.harmless(cut[:-1])

    def test_what_is_no_reply_is_a_fault(self) -> None:
        if any(isinstance(piece, bytes) for pieces in self.replies() for piece in pieces):
            for junk in JUNK:
                self.harmless([junk])

    def test_two_replies_that_are_read_at_once_do_not_mix(self) -> None:
        one, *others = self.replies()
        model, other = self.make_model(), others[0] if others else one
        alone = [self.read(one)[0], self.read(other)[0]]
        parsers = [model.parser(), model.parser()]
        for place in range(max(len(one), len(other))):
            for parser, pieces in zip(parsers, (one, other), strict=True):
                for piece in pieces[place : place + 1]:
                    parser.feed(piece)
        try:
            together = [parser.close() for parser in parsers]
        except ModelFault as error:
            raise AssertionError(f"two parsers of one model share something: {error}") from error
        assert together == alone, "two parsers of one model share something"

    def body_of(self, messages: Sequence[Message]) -> bytes:
        """Return the body of a request with these messages."""
        model = self.make_model()
        blocks = [model.encode(message) for message in messages]
        return Request(header=HEADER, envelope=model.envelope(HEADER), blocks=blocks).body()

    def read(self, pieces: Sequence[Piece]) -> tuple[Reply, list[Delta]]:
        """Parse the pieces of a reply.

        Return the reply and its deltas, which are pieces to show while the reply arrives.
        """
        parser = self.make_model().parser()
        deltas: list[Delta] = []
        for piece in pieces:
            deltas += parser.feed(piece)
        return parser.close(), deltas

    def harmless(self, pieces: Sequence[Piece]) -> None:
        """Check that parsing these pieces either returns a reply or raises `ModelFault`."""
        try:
            self.read(pieces)
        except ModelFault:
            pass
        except Exception as error:
            raise AssertionError(f"expected ModelFault or a reply, found {error!r}, of {pieces!r:.200}") from error


def strict(body: bytes, what: str) -> None:
    """Check that a body is strict JSON, which every server can read.

    Args:
        what: name of the body, for the error.
    """
    try:
        json.loads(body.decode(), parse_constant=_refuse, parse_int=str)
    except ValueError as error:
        raise AssertionError(f"{what} is not JSON ({error}): {body[:200]!r}") from error


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def cuts(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yield a reply in several ways: whole, byte by byte, and cut into two pieces.

    A reply that does not consist of bytes is yielded only whole.
    """
    if not all(isinstance(piece, bytes) for piece in pieces):
        yield list(pieces)
        return
    data = b"".join(piece for piece in pieces if isinstance(piece, bytes))
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(1, len(data), max(1, len(data) // CUTS)):
        yield [data[:at], data[at:]]
