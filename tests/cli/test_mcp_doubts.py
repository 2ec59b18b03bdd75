"""What a person reads about a call in doubt of a server's tool: what settles it now, and what would for the future."""

import sys
from pathlib import Path

import msgspec
import pytest
from tests.commands import anew
from tests.mcp_shop import SERVER

import gesta

AGENT = f"""
import gesta
shop = gesta.mcp([{sys.executable!r}, "-S", {str(SERVER)!r}, "."], prefix="shop_")
model = gesta.scripted(gesta.call("shop_pay", item="soup"), gesta.call("shop_look", item="soup"), "Done.")
agent = gesta.Agent("buyer", model=model, tools=[shop])
"""
TODO = (
    "`shop_pay` is a tool of the server 'shop'. To have such calls made again instead: gesta.mcp(..., "
    "effects={'pay': 'idempotent'}) if a second call does no harm, or 'pure' if it only reads."
)


def test_a_doubt_of_a_servers_tool_says_what_would_settle_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.py").write_text(AGENT)
    Path("die-after").touch()
    ran = anew("run", "agent.py:agent", "Buy.")
    assert ran.exit_code == 5, ran.stderr
    assert 'Outcome unknown: shop_pay(item="soup")' in ran.stderr
    assert TODO in ran.stderr
    assert "@tool" not in ran.stderr
    with gesta.open_sync("runs.gesta") as record:  # a process that has no agent knows it too
        (waiting,) = record.waiting("last")
    assert waiting.server is not None
    assert (waiting.tool, waiting.server.name, waiting.server.tool) == ("shop_pay", "shop", "pay")
    assert msgspec.json.decode(msgspec.json.encode(waiting), type=gesta.Waiting) == waiting
