"""No conversation may stop a run: broken ones of the retail desk, and those that other agents had with many models."""

from pathlib import Path

import anyio
import pytest
from benchmarks.foreign import AGENTDOJO, MINI_SWE, MISSING_IDS, Tally, drive
from benchmarks.retail.broken import CONVERSATIONS, FAULTS, drive_all
from tests.conftest import FULL

SAMPLE = None if FULL else 4
LONG = None if FULL else 1  # mini-swe-agent's have up to 144 calls
WITHOUT_IDS = ("Meta-SecAlign-70B", "command-r", "gemini-1.5-flash-001", "gemini-2.0-flash-001")


def driven(file: str, sample: int | None, *, stream: bool = False) -> Tally:
    tally = anyio.run(lambda: drive(file, sample=sample, stream=stream))
    if tally is None:
        pytest.skip(f"nothing here reads zstd, so {file} was not driven; install zstandard")
    return tally


@pytest.mark.slow
@pytest.mark.timeout(600 if FULL else 30)
@pytest.mark.parametrize("stream", [False, True] if FULL else [None])
def test_a_broken_conversation_goes_on_and_the_model_is_told_what_was_wrong(
    corpus: Path, tmp_path: Path, stream: bool | None
) -> None:
    found = anyio.run(lambda: drive_all(tmp_path, stream=stream, every=FULL))
    assert {fault for _, fault, _ in found} == FAULTS.keys()
    assert len({conversation for conversation, _, _ in found}) == CONVERSATIONS
    for conversation, fault, check in found:
        assert check.good(), (conversation, fault, check)
        assert check.derived == 0 or "id" in fault.split()


def test_every_file_of_agentdojo_is_driven(corpus: Path) -> None:
    assert sorted(AGENTDOJO) == sorted(f"agentdojo/runs/{path.name}" for path in corpus.glob("agentdojo/runs/*"))


@pytest.mark.sample(4)
@pytest.mark.timeout(600 if FULL else 30)
@pytest.mark.parametrize("file", AGENTDOJO)
def test_conversations_of_agentdojo_give_the_recorded_results(corpus: Path, file: str) -> None:
    tally = driven(file, SAMPLE)
    assert tally.good(), tally
    assert tally.conversations >= (SAMPLE or 8) and tally.left == 0
    if tally.file in WITHOUT_IDS:
        assert tally.kept == 0 and tally.derived == tally.calls > 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_whose_ids_are_all_empty_goes_through(corpus: Path, stream: bool) -> None:
    tally = driven(MISSING_IDS, None, stream=stream)
    assert tally.good(), tally
    assert (tally.calls, tally.equal, tally.derived) == (11, 11, 11)
    assert tally.reasons == {"answered": 1}


@pytest.mark.sample(3)
@pytest.mark.timeout(600 if FULL else 30)
@pytest.mark.parametrize("file", MINI_SWE)
def test_long_trajectories_that_were_cut_end_with_a_reason(corpus: Path, file: str) -> None:
    tally = driven(file, LONG, stream=True)
    assert tally.good(), tally
    assert tally.reasons == {"failed:ScriptExhausted": tally.conversations}
