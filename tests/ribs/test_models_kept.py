"""What a server wants back with its calls goes back as it came, to that model alone; images and files are sent."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.costs import LINEAR, growth

import gesta
from gesta.address import open_record
from gesta.errors import AgentError
from gesta.kinds import Part, RequestHeaderContent
from gesta.message import Call, Message, Native, attached
from gesta.model.request import Reply
from gesta.models.chat_completions import ChatDialect, ChatParser
from gesta.models.kept import Kept
from gesta.models.parts import note
from gesta.perform.compaction import transcript
from gesta.views.sent import message_text

NAMES = ("reasoning_content", "reasoning_details", "extra_content")
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
SIGNED = {**CALL, "extra_content": {"google": {"thought_signature": "sig"}}}
DETAILS = [{"type": "reasoning.text", "text": "I think.", "signature": "s", "index": 0}]


def read(data: bytes) -> Reply:
    parser = ChatParser(keeps=NAMES)
    parser.feed(data)
    return parser.close()


def whole(**members: Any) -> bytes:
    message = {"role": "assistant", "content": None, **members}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}).encode()


def streamed(*deltas: dict[str, Any]) -> bytes:
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


ROWS: dict[str, tuple[bytes, bytes, Any]] = {
    "reasoning": (
        whole(reasoning_content="I think.", tool_calls=[CALL]),
        streamed({"reasoning_content": "I th"}, {"reasoning_content": "ink."}, {"tool_calls": [{"index": 0, **CALL}]}),
        {"message": {"reasoning_content": "I think."}, "calls": [{}]},
    ),
    "details": (
        whole(reasoning_details=DETAILS, tool_calls=[CALL]),
        streamed(
            {"reasoning_details": [{"type": "reasoning.text", "text": "I ", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.text", "text": "think.", "signature": "s", "index": 0}]},
            {"tool_calls": [{"index": 0, **CALL}]},
        ),
        {"message": {"reasoning_details": DETAILS}, "calls": [{}]},
    ),
    "a signature on a call": (
        whole(tool_calls=[SIGNED, {**CALL, "id": "c2"}]),
        streamed({"tool_calls": [{"index": 0, **SIGNED}]}, {"tool_calls": [{"index": 1, **CALL, "id": "c2"}]}),
        {"message": {}, "calls": [{"extra_content": SIGNED["extra_content"]}, {}]},
    ),
    "nothing": (whole(tool_calls=[CALL]), streamed({"tool_calls": [{"index": 0, **CALL}]}), None),
    "no call": (
        whole(content="Hi", reasoning_content="x"),
        streamed({"reasoning_content": "x"}, {"content": "Hi"}),
        None,
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_whole_and_in_pieces_the_same_is_kept(row: tuple[bytes, bytes, Any]) -> None:
    at_once, pieces, native = row
    assert read(at_once).native == read(pieces).native == native


BEGUN = {"id": "c1", "function": {"name": "look", "arguments": '{"at"'}}
REST = {"arguments": ":1}"}
OTHER = {"index": 0, "id": "", "function": {"name": "hear", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        ([BEGUN, {"function": REST}], 1),
        ([BEGUN, {"id": "c1", "function": REST}], 1),
        ([{"index": 0, **BEGUN}, {"index": 0, "id": "another", "function": REST}], 1),
        ([{"index": 0, **BEGUN}, {"index": 0, "function": REST}, OTHER], 2),
    ],
    ids=["no index", "an id on each piece", "another id on each piece", "one index for all"],
)
def test_what_is_kept_goes_back_however_a_server_numbers_the_pieces_of_its_calls(pieces: list[Any], calls: int) -> None:
    reply = read(streamed({"reasoning_content": "I think."}, *({"tool_calls": [piece]} for piece in pieces)))
    dialect = ChatDialect("m", keeps=NAMES)
    message = Message(
        role="assistant",
        calls=tuple(Call(f"c{number}", call.name, json.loads(call.args)) for number, call in enumerate(reply.calls)),
        native=Native(f"{dialect.encoder} m", reply.native),
    )
    block = json.loads(dialect.encode(message))
    assert len(block["tool_calls"]) == calls
    assert block["reasoning_content"] == "I think."


def test_it_goes_back_to_the_same_model_and_to_no_other() -> None:
    dialect = ChatDialect("m", keeps=NAMES)
    native = {"message": {"reasoning_content": "I think."}, "calls": [{"extra_content": {"google": {}}}]}
    calls = (Call("c9", "look", {}),)
    for by, back in ((f"{dialect.encoder} m", True), (f"{dialect.encoder} n", False), ("responses/1 m", False)):
        message = Message(role="assistant", calls=calls, native=Native(by, native))
        block = json.loads(dialect.encode(message))
        assert ("reasoning_content" in block) is back
        assert ("extra_content" in block["tool_calls"][0]) is back
        assert block["tool_calls"][0]["id"] == "c9"
    assert dialect.encode(Message(role="assistant", calls=calls)) == block_bytes(dialect, calls)


def block_bytes(dialect: ChatDialect, calls: tuple[Call, ...]) -> bytes:
    """What is sent where the native items do not fit the calls that are on record."""
    odd = Native(f"{dialect.encoder} m", {"message": {"reasoning_content": "x"}, "calls": [{}, {}]})
    return dialect.encode(Message(role="assistant", calls=calls, native=odd))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*NAMES, "index", "type"]), inner),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.sampled_from([*NAMES, "tool_calls"]), json_values), max_size=4), json_values)
def test_nothing_that_a_server_sends_there_raises(deltas: list[dict[str, Any]], native: Any) -> None:
    made = read(streamed(*deltas))
    json.dumps(made.native)
    message = Message(role="assistant", calls=(Call("a", "look", {}),), native=Native("chat-completions/1 m", native))
    json.loads(ChatDialect("m").encode(message))


async def test_it_stands_on_record_and_in_the_next_request() -> None:
    @gesta.tool(effect="pure")
    def look() -> str:
        """Look."""
        return "seen"

    class Live:
        """A keyless model with the bytes and the dialect of a live one."""

        def __init__(self) -> None:
            self.dialect = ChatDialect("m", keeps=NAMES)
            self.name, self.encoder = "live:m", self.dialect.encoder
            self.encode, self.envelope, self.parser = self.dialect.encode, self.dialect.envelope, self.dialect.parser
            self.bodies: list[Any] = []

        async def send(self, request: Any) -> Any:
            self.bodies.append(json.loads(request.body()))
            yield (
                whole(reasoning_content="I think.", tool_calls=[CALL]) if len(self.bodies) == 1 else whole(content="ok")
            )

    model = Live()
    async with open_record(":memory:") as record:
        outcome = await record.run(gesta.Agent("a", model=model, tools=[look]), "hi")
    assert outcome.answer == "ok"
    assert model.bodies[1]["messages"][1]["reasoning_content"] == "I think."


# images and files


def test_images_and_files_are_sent_with_what_a_person_says(tmp_path: Path) -> None:
    file = tmp_path / "cat.png"
    file.write_bytes(b"png")
    data = b64encode(b"png").decode()
    parts = (
        attached(file),
        Part(type="image", url="https://example.com/a.png"),
        Part(type="file", data=b"png", media_type="application/pdf", name="a.pdf"),
        Part(type="file", data=b"png", media_type="audio/mpeg"),
        Part(type="text", text="and this"),
        Part(type="file", blob="b2"),
    )
    block = json.loads(ChatDialect("m").encode(Message(role="user", text="Look", parts=parts)))
    assert block["content"] == [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}},
        {"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}},
        {"type": "text", "text": "and this"},
        {"type": "text", "text": "[file 'b2', type unknown: it cannot be shown here]"},
    ]
    sent = json.loads(ChatDialect("m").encode(Message(role="tool", call_id="c", text="seen", parts=parts[:1])))
    assert sent["content"] == "seen\n[image 'cat.png', image/png: it cannot be shown here]"


@pytest.mark.parametrize(
    ("name", "data", "media_type", "form"),
    [
        ("photo", b"\xff\xd8\xff\xe0 and more", "image/jpeg", "image"),
        ("photo.unknown-ending", b"\x89PNG\r\n\x1a\n...", "image/png", "image"),
        ("photo", b"GIF89a...", "image/gif", "image"),
        ("photo", b"RIFF\x00\x01\x00\x00WEBPVP8 ", "image/webp", "image"),
        ("photo.png", b"\xff\xd8\xff\xe0 named wrongly", "image/jpeg", "image"),
        ("drawing.svg", b"<svg/>", "image/svg+xml", "image"),
        ("scan", b"%PDF-1.7 ...", "application/pdf", "file"),
        ("about.html", b"%PDF-1.7 is how a PDF begins", "text/html", "file"),
        ("Makefile", "all: größer\n".encode(), "text/plain", "file"),
        ("empty", b"", "text/plain", "file"),
        ("server.log.gz", b"\x1f\x8b\x08\x00", "application/gzip", "file"),
        ("all.tar.gz", b"\x1f\x8b\x08\x00", "application/gzip", "file"),
        ("drawing.svgz", b"\x1f\x8b\x08\x00", "application/gzip", "file"),
        ("all.tar.bz2", b"BZh9\xff", "application/x-bzip2", "file"),
        ("notes.xz", b"\xfd7zXZ\x00", "application/x-xz", "file"),
        ("notes.Z", b"\x1f\x9d\x90", "application/x-compress", "file"),
        ("page.html.br", b"\x0b\x02\x80", "application/x-brotli", "file"),
        ("photo.png.gz", b"\x89PNG\r\n\x1a\n not packed", "image/png", "image"),
    ],
)
def test_a_file_is_what_its_name_says_or_else_its_bytes(
    tmp_path: Path, name: str, data: bytes, media_type: str, form: str
) -> None:
    (tmp_path / name).write_bytes(data)
    assert attached(tmp_path / name) == Part(type=form, data=data, media_type=media_type, name=name)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "data"), [("blob", b"\x00\x01\xff"), ("notes.packed", b"\x1f\x8b\x08\x00")])
def test_a_file_of_which_nobody_knows_what_it_is_is_refused_in_words(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(AgentError, match=rf"'{name}'.*not an image, PDF or text.*media_type="):
        attached(tmp_path / name)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Part(type="image", data=b"x", media_type="image/png", name="cat.png"), "[image 'cat.png', image/png]"),
        (Part(type="file", blob="b2"), "[file 'b2', type unknown]"),
        (Part(type="image", url="data:image/png;base64,AAAA"), "[image 'without a name', type unknown]"),
        (Part(type="image", url="https://example.com/a.png"), "[image 'https://example.com/a.png', type unknown]"),
        (Part(type="text", text="and this"), "and this"),
    ],
)
def test_a_part_is_named_alike_wherever_it_is_told_of(part: Part, words: str) -> None:
    message = Message(role="user", text="Look", parts=(part,))
    assert transcript([message]) == f"user: Look\n{words}"
    assert message_text(message) == f"Look\n{words}"
    if part.type != "text":
        assert note(part) == f"{words[:-1]}: it cannot be shown here]"


async def test_a_large_image_is_a_blob_on_record_and_whole_in_every_request(tmp_path: Path) -> None:
    image = Part(type="image", data=bytes(range(256)) * 1000, media_type="image/png", name="big.png")
    path = tmp_path / "a.gesta"
    seen: list[Any] = []

    def look(messages: Any, _header: RequestHeaderContent) -> str:
        seen.append(messages[0]["content"])
        return "seen"

    agent = gesta.Agent("a", model=gesta.function(look))
    for _ in range(2):
        async with open_record(str(path)) as record:
            outcome = await record.run(agent, ["What is this?", image], session="s")
            rows = (await record.store.sql("SELECT length(data) FROM blobs")).rows
            (first, *_) = [entry for entry in await record.read(outcome.run) if entry.kind == "user"]
            assert first.content.parts == [image]  # type: ignore[union-attr]
    assert rows[0][0] >= 256_000
    url = f"data:image/png;base64,{b64encode(image.data).decode()}"
    assert [part["image_url"]["url"] for part in seen[-1] if part["type"] == "image_url"] == [url]


@pytest.mark.parametrize("said", [b"png", ["Look", b"png"], ["Look", Path("cat.png")], [{"type": "image"}], 5, None])
async def test_what_is_neither_words_nor_a_file_is_refused_and_not_left_out(said: Any) -> None:
    async with open_record(":memory:") as record:
        with pytest.raises(AgentError, match=r"expected a text, or a list of .*attached\(PATH\)"):
            await record.run(gesta.Agent("a", model=gesta.scripted("ok")), said)
        outcome = await record.run(gesta.Agent("a", model=gesta.scripted("ok")), Part(type="image", data=b"png"))
        assert outcome.answer == "ok", "one file may come alone"


@pytest.mark.parametrize("whole", [False, True])
def test_long_reasoning_costs_what_its_pieces_cost(whole: bool) -> None:
    detail = {"type": "reasoning.text", "index": 0, "text": "x" * 100}
    piece = {"reasoning_details": [detail]} if whole else {"reasoning_content": "x" * 100}

    def take(count: int) -> None:
        kept = Kept(NAMES)
        for _ in range(count):
            kept.take(piece)
        message = kept.members()
        text = message["reasoning_details"][0]["text"] if whole else message["reasoning_content"]
        assert len(text) == 100 * count

    assert growth(take, 10_000) < LINEAR
