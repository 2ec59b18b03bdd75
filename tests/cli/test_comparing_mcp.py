"""`gesta replay`, `fork`, `diff` and `case` on a run with tools of an MCP server."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from tests.commands import anew
from tests.mcp_shop import SERVER, lines

AGENT = """
import gesta

def told(messages, header):
    seen = sum(message["role"] == "tool" for message in messages)
    return [gesta.call("look", item="soup"), gesta.call("pay", item="soup"), "Done."][seen]

agent = gesta.Agent("buyer", model=gesta.function(told))
"""


@pytest.mark.slow
def test_a_run_with_mcp_servers_is_replayed_kept_and_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.py").write_text(AGENT)
    server = shlex.join([sys.executable, "-S", str(SERVER), str(tmp_path)])
    assert anew("run", "agent.py:agent", "Buy.", "--mcp", server, "-s", "ann").exit_code == 0
    did = lines(tmp_path, "effects"), lines(tmp_path, "starts")

    replayed = anew("replay", "ann", "agent.py:agent")
    assert "all the same. Nothing was done." in replayed.stdout, replayed.output
    kept = anew("case", "add", "ann", "agent.py:agent")
    assert kept.exit_code == 0, kept.output
    assert (lines(tmp_path, "effects"), lines(tmp_path, "starts")) == did

    changed = '8.tool_result="no soup"'
    misspelt = anew("fork", "ann", "agent.py:agent", "--set", changed, "--mcp", server, "--live", "pai")
    assert misspelt.exit_code == 2
    assert "--live pai: 'buyer' has no such tool, and no server offered it in run" in misspelt.stderr
    assert "It has: look, put, pay," in misspelt.stderr
    forked = anew("fork", "ann", "agent.py:agent", "--set", changed, "--mcp", server, "-s", "other")
    assert forked.stdout.strip() == "Done.", "pay has the same arguments, and so the result on record"
    assert lines(tmp_path, "effects") == did[0]
    Path("agent.py").write_text(AGENT.replace('"pay", item="soup"', '"pay", item="bread"'))
    waits = anew("fork", "ann", "agent.py:agent", "--at", "2", "--mcp", server, "-s", "third")
    assert waits.exit_code == 3
    assert f"gesta resume {waits.stderr.split('fork ')[1].split(',')[0]} agent.py:agent --mcp" in waits.stderr
    assert lines(tmp_path, "effects") == did[0]
    live = anew("fork", "ann", "agent.py:agent", "--at", "2", "--mcp", server, "--live", "pay", "-s", "fourth")
    assert live.stdout.strip() == "Done."
    assert lines(tmp_path, "effects") == [*did[0], "pay bread"]
    told = json.loads(anew("diff", "ann", "fourth", "--json").stdout)
    assert [(each["tool"], each["fired"]) for each in told["after"]["effects"]] == [("look", False), ("pay", True)]
    assert {each["kind"] for each in told["steps"]} == {"approval", "tool-call", "tool-result"}
