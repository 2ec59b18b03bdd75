"""A large value is kept once by one writer of one run, under a name that its salt makes unguessable."""

from hashlib import sha256
from itertools import count

from gesta.codec.blobs import LARGE, REMEMBERED, Blobs, blob_name
from gesta.codec.rows import LARGE as WHERE_CODEC_SPLITS


def numbered() -> Blobs:
    numbers = count(1)
    return Blobs(salt=lambda: next(numbers).to_bytes(16, "big"))


def test_a_name_is_the_salted_hash() -> None:
    assert blob_name(b"s" * 16, b"data") == sha256(b"s" * 16 + b"data").hexdigest()
    assert LARGE is WHERE_CODEC_SPLITS


def test_equal_data_are_kept_once_and_handed_out_once() -> None:
    blobs = numbered()
    first, again, other = blobs.keep(b"one"), blobs.keep(b"one"), blobs.keep(b"two")
    assert first == again != other
    salts = [number.to_bytes(16, "big") for number in (1, 2)]
    assert blobs.take() == [(first, salts[0], b"one"), (other, salts[1], b"two")]
    assert blobs.take() == []
    assert blobs.keep(b"one") == first, "known also after it was handed out"
    assert blobs.take() == []
    assert first == blob_name(salts[0], b"one")


def test_two_writers_give_equal_data_two_names() -> None:
    names = {Blobs().keep(b"the same") for _ in range(2)}
    assert len(names) == 2, "else a name would tell what an erased value was"


def test_memory_is_bounded() -> None:
    blobs = numbered()
    first = blobs.keep(b"first")
    for number in range(REMEMBERED):
        blobs.keep(b"%d" % number)
    assert blobs.keep(b"%d" % (REMEMBERED - 1)) != blobs.keep(b"first") != first, "the oldest is forgotten"
    assert len(blobs._names) == REMEMBERED
    assert len(blobs.take()) == REMEMBERED + 2, "and then kept twice, never lost"
    assert not blobs.fresh
