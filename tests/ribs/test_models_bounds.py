"""No server on loopback, however hostile, makes a reply that is larger than its bounds."""

import asyncio
import functools
import gzip
import tracemalloc
import zlib
from itertools import chain, repeat

import pytest
from tests.ribs.test_models_http import STREAM, WHOLE, Behaviour, answer, ask, asking, fault, serving

import gesta
from gesta.models.bounds import Bounds
from gesta.models.hosted import hosted

MIB = 2**20
HEAD = "HTTP/1.1 200 OK\r\ncontent-type: {}\r\n{}transfer-encoding: chunked\r\n\r\n"


def endless(piece: bytes, first: bytes = b"", *headers: str, media_type: str = "text/event-stream") -> Behaviour:
    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD.format(media_type, "".join(f"{each}\r\n" for each in headers)).encode())
        for data in chain([first] if first else [], repeat(piece)):
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()

    return behave


def empty_blocks() -> tuple[bytes, bytes]:
    """The head of a gzip file, and a block of it that holds nothing: such a file may go on for ever."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    head = packer.compress(b"") + packer.flush(zlib.Z_SYNC_FLUSH)
    return head, packer.flush(zlib.Z_FULL_FLUSH) * 2000


@functools.cache
def bomb(size: int) -> bytes:
    """A thousandth of what it unpacks to."""
    packer, piece = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16), b"x" * MIB
    return b"".join([packer.compress(b'{"a":"'), *map(packer.compress, [piece] * size)])


SMALL = Bounds(sent_bytes=4 * MIB, unpacked_bytes=4 * MIB, line_bytes=2 * MIB, lines=1000)
PACKED = "content-encoding: gzip"
HEAD_OF_EMPTY, BLOCKS = empty_blocks()


def bombing(status: str) -> Behaviour:
    """Answer with a bomb, which is made when it is first sent, and not when tests are collected."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        await answer(bomb(40), status, PACKED)(writer)

    return behave


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("behaviour", "name"),
    [
        pytest.param(bombing("200 OK"), "unpacked_bytes", id="a gzip bomb of 40 MB"),
        pytest.param(endless(b"x" * 65536, b"data: "), "line_bytes", id="a line without end"),
        pytest.param(endless(b"data: {}\n\n" * 100), "lines", id="events without end"),
        pytest.param(endless(b"data: {}\r\r" * 100), "lines", id="events without end whose lines end in CR"),
        pytest.param(endless(b": " + b"x" * 65536 + b"\n\n"), "sent_bytes", id="comments without end"),
        pytest.param(endless(b"x" * 65536, b'{"a":"', media_type="application/json"), "sent_bytes", id="one value"),
        pytest.param(endless(b" " * 65536, media_type="text/plain"), "sent_bytes", id="blanks without end"),
        pytest.param(endless(BLOCKS, HEAD_OF_EMPTY, PACKED), "sent_bytes", id="packed, and nothing in it"),
    ],
)
async def test_a_reply_without_end_ends_at_its_bound_in_little_memory(behaviour: Behaviour, name: str) -> None:
    async with serving(behaviour) as server, asking(server, bounds=SMALL) as model:
        tracemalloc.start()
        try:
            found = await fault(model)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    most = getattr(SMALL, name)
    assert (found.type, found.retry) == ("reply-too-large", False)
    assert f"the reply has more than {most:,} " in found.message
    assert f"Raise it with gesta.hosted(…, bounds=Bounds({name}=…)) if a reply may be as large." in found.message
    assert peak < 20 * MIB


@pytest.mark.parametrize("packing", ["br", "zstd", "deflate", "gzip, gzip", "compress"])
async def test_a_reply_in_a_packing_that_was_not_asked_for_is_not_unpacked(packing: str) -> None:
    behaviour = answer(b"x" * 100, "200 OK", f"content-encoding: {packing}")
    async with serving(behaviour) as server, asking(server) as model:
        found = await fault(model)
    assert found.type == "bad-reply"
    assert found.message == f"test:m: the reply is packed as {packing!r}; expected gzip, or none."
    assert "accept-encoding: gzip\r\n" in server.heads[0]


async def test_an_error_whose_body_is_a_bomb_is_still_that_error() -> None:
    for behaviour in (
        bombing("500 Oh"),
        answer(b"x" * 100, "500 Oh", "content-encoding: br"),
        answer(b"not gzip", "500 Oh", PACKED),
    ):
        async with serving(behaviour) as server, asking(server, bounds=SMALL) as model:
            found = await fault(model)
        assert (found.type, found.http_status) == ("http-500", 500)
        assert len(found.message) < 3000


@pytest.mark.parametrize("packed", [STREAM, WHOLE])
async def test_a_packed_reply_is_read_however_it_is_cut(packed: bytes) -> None:
    whole = gzip.compress(packed)

    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD.format("text/event-stream", PACKED + "\r\n").encode())
        for byte in whole:
            writer.write(b"1\r\n%c\r\n" % byte)
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async with serving(behave) as server, asking(server) as model:
        assert (await ask(model)).text == "Hello"


async def test_bounds_are_set_on_a_model_that_was_made_from_an_address() -> None:
    async with serving(answer(WHOLE)) as server:
        model = hosted("m", base_url=server.url, key="k").within(Bounds(unpacked_bytes=10))
        agent = gesta.Agent("a", model=model)
        async with gesta.open() as record:
            outcome = await record.run(agent, "Hi")
        await model.aclose()
    assert outcome.reason == "failed" and outcome.error is not None
    assert (outcome.error.type, len(server.heads)) == ("reply-too-large", 1)


async def test_without_bounds_a_large_reply_is_read() -> None:
    nothing = Bounds(sent_bytes=None, unpacked_bytes=None, line_bytes=None, lines=None, total_s=None)
    text = b"x" * (3 * MIB)
    behaviour = answer(gzip.compress(WHOLE.replace(b"Hello", text)), "200 OK", PACKED)
    async with serving(behaviour) as server, asking(server, bounds=nothing) as model:
        assert len((await ask(model)).text) == len(text)


def test_bounds_are_set_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GESTA_REPLY_BOUNDS", " total_s=3600 , lines=None, unpacked_bytes=5,")
    assert hosted("ollama:llama3.1").bounds == Bounds(total_s=3600, lines=None, unpacked_bytes=5)
    monkeypatch.delenv("GESTA_REPLY_BOUNDS")
    assert hosted("ollama:llama3.1").bounds == Bounds()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("total=5", "there is no bound 'total'. Did you mean 'total_s'? The bounds are: connect_s, read_s, write_s, "),
        ("lines=1.5", "'lines=1.5' is not a bound, expected a number above 0 or none, as in lines=2000000."),
        ("read_s=-1", "'read_s=-1' is not a bound, expected a number above 0 or none, as in read_s=300.0."),
        ("read_s=nan", "'read_s=nan' is not a bound, expected a number above 0 or none, as in read_s=300.0."),
        ("read_s", "'read_s' is not a bound, expected a number above 0 or none, as in read_s=300.0."),
    ],
)
def test_a_bound_in_the_environment_that_is_none_says_what_one_is(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GESTA_REPLY_BOUNDS", text)
    with pytest.raises(gesta.GestaError) as refused:
        hosted("ollama:llama3.1")
    assert str(refused.value).startswith(f"GESTA_REPLY_BOUNDS: {said}")
