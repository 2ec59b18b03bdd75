"""`gesta approve` where the request has expired, and where the program counts signed approvals alone."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from tests.cli.conftest import Gesta
from tests.commands import anew

import gesta as library
from gesta.decide.approval import asked, sign
from gesta.kinds import ApprovalContent

pytestmark = pytest.mark.sample(2, over="parent")

Find = Callable[[str], str]
KEY = "6b" * 32
SHOP = """
import gesta
from gesta.decide.approval import SignedApprovals


@gesta.tool(effect="once", approval=True, expires_s=60)
def wire(euros: int) -> str:
    "Wire money."
    return f"{euros} wired"


desk = gesta.Agent("desk", model=gesta.scripted(gesta.call("wire", euros=1), "So be it."), tools=[wire])
pair = gesta.Agent(
    "pair", model=gesta.scripted([gesta.call("wire", euros=1), gesta.call("wire", euros=2)], "So be it."), tools=[wire]
)
"""
SIGNED = (
    SHOP
    + f"""
approver = SignedApprovals({{"cfo": bytes.fromhex("{KEY}")}})
"""
)


@pytest.fixture
def shop(folder: Path) -> Iterator[Path]:
    """A folder with a program that believes every name, and one that has an Approver."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "signed.py").write_text(SIGNED)
    path = list(sys.path)
    yield folder
    sys.path[:] = path


def long_ago(agent: str) -> str:
    """Have a turn ask for approval on New Year's Day; returns its run."""
    space: dict[str, library.Agent] = {}
    exec(SHOP, space)

    async def main() -> str:
        async with library.open("runs.gesta") as record:
            record.turns.clock = lambda: datetime(2026, 1, 1, tzinfo=UTC)
            return (await record.run(space[agent], "Wire.", session="s")).run

    return anyio.run(main)


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("words", [[], ["--deny"], ["--all"], ["--call", "6"], ["--result", "1"]])
def test_a_request_that_expired_cannot_be_answered(gesta: Gesta, words: list[str]):
    run = long_ago("desk")
    done = gesta("approve", "last", *words)
    assert done.exit_code == 2
    assert done.stderr == (
        "record: runs.gesta\n"
        f"error: The request for approval in run {run} has expired, so nothing was sent:\n"
        "  call 6, wire(euros=1), at 2026-01-01T00:01:00.000000Z\n"
        "The call does not run; when the run goes on, the model reads that nobody answered in time. "
        f"Next: gesta resume {run} FILE.py:NAME\n"
    )
    done = anew("resume", "last", "shop.py:desk")
    assert "denied: A person did not allow this call. Nobody answered until 2026-01-01" in done.stderr
    assert done.stdout == "So be it.\n"


@pytest.mark.usefixtures("shop")
def test_two_requests_that_expired_are_both_named(gesta: Gesta):
    run = long_ago("pair")
    done = gesta("approve", "last", "--all")
    assert done.exit_code == 2
    assert (
        f"error: 2 requests for approval in run {run} have expired, so nothing was sent:\n"
        "  call 6, wire(euros=1), at 2026-01-01T00:01:00.000000Z\n"
        "  call 7, wire(euros=2), at 2026-01-01T00:01:00.000000Z\n"
        "The calls do not run; when the run goes on, the model reads that nobody answered in time. "
    ) in done.stderr


@pytest.mark.usefixtures("shop")
def test_a_claim_is_refused_where_the_program_has_an_approver(gesta: Gesta, run_id: Find):
    assert anew("run", "signed.py:desk", "Wire.").exit_code == 3
    assert gesta("approve", "last", "--by", "cfo").exit_code == 0
    done = anew("resume", "last", "signed.py:desk")
    run = run_id("desk")
    assert done.exit_code == 3
    assert done.stderr == (
        "record: runs.gesta\n"
        "  approved by cfo, which does not count: It has no token, and this program counts signed approvals alone. "
        "Set GESTA_APPROVAL_KEY for `gesta approve`, or pass --token-file.\n"
        "Waiting for approval of wire(euros=1) (call 6).\n"
        "An answer to it does not count: It has no token, and this program counts signed approvals alone. "
        "Set GESTA_APPROVAL_KEY for `gesta approve`, or pass --token-file.\n"
        "Go on with:\n"
        f"  gesta approve {run} && gesta resume {run} signed.py:desk\n"
    )
    log = " ".join(gesta("log", "last").stdout.split())
    assert re.search(r"approved by cfo \(said at [\d:]{8}\), which does not count: It has no token", log)


@pytest.mark.usefixtures("shop")
def test_yes_is_no_signature_and_ends(gesta: Gesta):
    done = anew("run", "signed.py:desk", "Wire.", "--yes")
    assert done.exit_code == 3
    assert done.stderr.count("approved by --yes, which does not count") == 1
    assert "An answer to it does not count: It has no token" in done.stderr


@pytest.mark.usefixtures("shop")
def test_the_key_of_the_environment_signs(gesta: Gesta, monkeypatch: pytest.MonkeyPatch):
    anew("run", "signed.py:desk", "Wire.")
    monkeypatch.setenv("GESTA_APPROVAL_KEY", KEY)
    done = gesta("approve", "last", "--by", "cfo")
    assert done.stderr.startswith("record: runs.gesta\napproved, signed as cfo: wire(euros=1)\nNext: ")
    assert KEY not in done.stderr
    assert anew("resume", "last", "signed.py:desk").stdout == "So be it.\n"
    assert KEY not in gesta("log", "last", "--json").stdout


@pytest.mark.usefixtures("shop")
def test_a_claim_that_waits_or_was_refused_keeps_nobody_from_signing(gesta: Gesta, monkeypatch: pytest.MonkeyPatch):
    anew("run", "signed.py:desk", "Wire.")
    gesta("approve", "last", "--by", "cfo", "--deny")
    monkeypatch.setenv("GESTA_APPROVAL_KEY", KEY)
    done = gesta("approve", "last", "--by", "cfo")
    assert done.exit_code == 0
    assert "Another answer to it waits already; the first one that counts decides.\n" in done.stderr
    done = gesta("approve", "last", "--by", "cfo")
    assert done.exit_code == 1
    assert "was sent before. Next: gesta resume" in done.stderr
    assert anew("resume", "last", "signed.py:desk").exit_code == 0


@pytest.mark.usefixtures("shop")
def test_a_claim_can_be_made_again_after_one_was_refused(gesta: Gesta):
    anew("run", "signed.py:desk", "Wire.")
    for _ in range(2):
        assert gesta("approve", "last").exit_code == 0
        assert anew("resume", "last", "signed.py:desk").exit_code == 3
    assert gesta("approve", "last").exit_code == 0
    assert anew("resume", "last", "shop.py:desk").stdout == "So be it.\n"


def test_a_token_made_elsewhere_comes_in_a_file(shop: Path, gesta: Gesta, run_id: Find):
    anew("run", "signed.py:desk", "Wire.")
    run = run_id("desk")

    async def token() -> str:
        async with library.open("runs.gesta", readonly=True) as record:
            (request,) = await asked(record.store, run)
        return sign(ApprovalContent(of=request.request, verdict="approved", by="cfo"), request, b"k" * 32).token or ""

    (shop / "token").write_text(anyio.run(token) + "\n")
    done = gesta("approve", "last", "--by", "cfo", "--token-file", "token")
    assert "approved, with a token: wire(euros=1)\n" in done.stderr
    assert anew("resume", "last", "signed.py:desk").stdout == "So be it.\n"


@pytest.mark.parametrize(
    ("key", "words", "said"),
    [
        ("zz", [], "GESTA_APPROVAL_KEY is not a key: expected hexadecimal digits, at least 32 of them"),
        ("00", [], "GESTA_APPROVAL_KEY is not a key: expected hexadecimal digits, at least 32 of them; python -c "),
        (
            "",
            ["--token-file", "none"],
            "Cannot read the token in 'none': No such file or directory. Name a file that is there: --token-file FILE",
        ),
        (
            "",
            ["--token-file", "empty"],
            "There is no token in 'empty': expected one line of text. Write the token of `sign` there.",
        ),
    ],
)
def test_what_is_no_key_or_token_is_told(
    shop: Path, gesta: Gesta, monkeypatch: pytest.MonkeyPatch, key: str, words: list[str], said: str
):
    anew("run", "signed.py:desk", "Wire.")
    (shop / "empty").write_text("\n")
    monkeypatch.setenv("GESTA_APPROVAL_KEY", key)
    done = gesta("approve", "last", *words)
    assert done.exit_code == 2
    assert f"error: {said}" in done.stderr
    assert gesta("approve", "last", "--json").exit_code == (2 if key else 0)


def test_a_token_goes_with_one_call(shop: Path, gesta: Gesta):
    anew("run", "signed.py:pair", "Wire.")
    (shop / "token").write_text("t")
    done = gesta("approve", "last", "--all", "--token-file", "token")
    assert done.exit_code == 2
    assert "error: A token fits one call, and --all means 2. Name the call with --call N.\n" in done.stderr


def test_agents_of_one_record_have_one_approver(shop: Path):
    (shop / "other.py").write_text(SIGNED.replace("6b" * 32, "6c" * 32))
    (shop / "odd.py").write_text(SHOP + '\napprover = "cfo"\n')
    anew("run", "shop.py:desk", "Wire.")
    done = anew("work", "signed.py:desk", "other.py:desk", "--once")
    assert done.exit_code == 2
    assert (
        "error: signed.py and other.py each have an `approver` of their own, and a record has one. "
        "Import the one from the other." in done.stderr
    )
    done = anew("work", "odd.py:desk", "--once")
    assert done.exit_code == 2
    assert (
        "error: `approver` in odd.py is of type str, expected an Approver such as "
        "gesta.decide.approval.SignedApprovals({...})." in done.stderr
    )


@pytest.mark.parametrize("agents", [["signed.py:desk", "other.py:desk"], ["other.py:desk", "signed.py:desk"]])
def test_two_files_may_have_the_same_approver(shop: Path, agents: list[str]):
    (shop / "other.py").write_text(SHOP + "\nfrom signed import approver\n")
    anew("run", "signed.py:desk", "Wire.")
    done = anew("work", *agents, "--once")
    assert done.exit_code == 0
    assert "waiting: approval" in done.stderr


def test_an_agent_that_is_named_approver_is_none(shop: Path):
    (shop / "odd.py").write_text(SHOP + "\napprover = desk\n")
    assert anew("run", "odd.py:desk", "Wire.", "--yes").exit_code == 0


@pytest.mark.usefixtures("shop")
def test_without_an_approver_whoever_has_a_shell_approves(gesta: Gesta):
    anew("run", "shop.py:desk", "Wire.")
    assert gesta("approve", "last", "--by", "cfo").exit_code == 0
    assert anew("resume", "last", "shop.py:desk").exit_code == 0
    (line,) = [line for line in gesta("log", "last", "--json").stdout.splitlines() if '"kind": "approval"' in line]
    assert json.loads(line)["content"]["by"] == "cfo"
