"""`--mcp SERVER` adds the tools of a server to the agent of a command."""

import shlex
import sys
from pathlib import Path

import pytest
from tests.commands import anew
from tests.mcp_shop import SERVER, lines

AGENT = """
import gesta
model = gesta.scripted(gesta.call("look", item="soup"), gesta.call("choose", item="soup"), "Done.")
agent = gesta.Agent("buyer", model=model)
"""


def test_run_resume_and_work_add_the_tools_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.py").write_text(AGENT)
    server = shlex.join([sys.executable, "-S", str(SERVER), str(tmp_path)])
    ran = anew("run", "agent.py:agent", "Buy.", "--mcp", server)
    assert ran.exit_code == 3, ran.stderr
    assert "shop asks: Which size of soup?" in ran.stderr
    assert f"agent.py:agent --mcp {shlex.quote(server)}" in ran.stderr
    assert anew("answer", "last", '{"size": "large"}', "--by", "Ada").exit_code == 0
    worked = anew("work", "agent.py:agent", "--once", "--mcp", server)
    assert worked.exit_code == 0, worked.stderr
    assert anew("resolve", "last", "retry", "--by", "Ada").exit_code == 0
    resumed = anew("resume", "last", "agent.py:agent", "--mcp", server)
    assert resumed.stdout.strip() == "Done."
    assert lines(tmp_path, "effects") == ["look soup", "choose soup large"]
