"""Three tools, and the process kills itself in the third: the probe that was put to every other framework.

The model calls t1, then t2 and t3 at once. t2 has its result; t3 has its effect, and then its process is gone. Whoever
sends the message again must have each effect once, buy no answer twice, and be told that nobody knows of t3.
"""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests import programs

PROGRAM = """
import json, os, signal, sys, time
import anyio, apsw, gesta
from gesta.kinds import ResolutionContent

def happened(what):
    file = os.open("happened", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(file, f"{what}\\n".encode())
    os.fsync(file)

@gesta.tool(effect="once")
def t1() -> str:
    "Do the first thing."
    happened("t1")
    return "one"

@gesta.tool(effect="once")
def t2() -> str:
    "Do the second thing."
    happened("t2")
    return "two"

@gesta.tool(effect="once")
def t3() -> str:
    "Do the third thing, when the second has its result on record."
    file = apsw.Connection("r.gesta")
    while file.execute("SELECT count(*) FROM entries WHERE kind = 'tool-result'").fetchone()[0] < 2:
        time.sleep(0.01)
    happened("t3")
    os.kill(os.getpid(), signal.SIGKILL)

def think(messages, header):
    happened(f"asked {len(messages)}")
    tools = [each["content"] for each in messages if each["role"] == "tool"]
    if not tools:
        return gesta.call("t1")
    return [gesta.call("t2"), gesta.call("t3")] if len(tools) == 1 else " ".join(tools)

async def main():
    agent = gesta.Agent("desk", model=gesta.function(think), tools=[t1, t2, t3])
    async with gesta.open("r.gesta") as record:
        outcome = await record.run(agent, "Do all three.", session="s", key="m")
        if outcome.waiting and sys.argv[1:]:
            told = ResolutionContent(of=outcome.waiting[0].of, verdict="done", by="ann", result=sys.argv[1])
            await record.send(outcome.run, told, key="t3")
            outcome = await record.run(agent, "Do all three.", session="s", key="m")
        waits = [[each.what, each.tool] for each in outcome.waiting]
        print(json.dumps({"reason": outcome.reason, "answer": outcome.answer, "waits": waits}))

anyio.run(main)
"""


def test_each_effect_happens_once_no_answer_is_bought_twice_and_the_doubtful_call_is_named(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)

    def play(*words: str) -> subprocess.CompletedProcess[str]:
        return programs.run(["program.py", *words], cwd=tmp_path)

    def told(*words: str) -> dict[str, Any]:
        done = play(*words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def happened() -> list[str]:
        return (tmp_path / "happened").read_text().splitlines()

    assert play().returncode == -signal.SIGKILL
    before = happened()
    assert before == ["asked 1", "t1", "asked 3", "t2", "t3"]
    for _ in range(2):
        assert told() == {"reason": "waiting", "answer": None, "waits": [["doubt", "t3"]]}
    assert happened() == before
    assert told("three") == {"reason": "answered", "answer": "one two three", "waits": []}
    assert happened() == [*before, "asked 6"]
