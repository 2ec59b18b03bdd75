"""Runs a pattern that is killed inside its tool, after the effect and before its result is on record.

    python -m tests.seeds.killed_pattern PATTERN FOLDER DEATHS

PATTERN is `react`, `plan` or `supervisor`, or one of these after `their-`: TrustGraph's own, from the checkout that
GESTA_TRUSTGRAPH names, with the modules changed that they import. So many effects as DEATHS end their process.
"""

import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.seeds.test_004_pattern_base import Plan, React, Supervisor

import gesta
from gesta.compat.trustgraph.agent.orchestrator.pattern_base import PatternBase

THEIRS = {
    "their-react": ("react_pattern", "ReactPattern"),
    "their-plan": ("plan_pattern", "PlanThenExecutePattern"),
    "their-supervisor": ("supervisor_pattern", "SupervisorPattern"),
}
PLACES = ["attic", "cellar"]
CHANGED = (
    (r"from \.\.\. ?schema", "from gesta.compat.trustgraph.schema"),
    (r"from trustgraph\.", "from gesta.compat.trustgraph."),
    (r"from \. ?pattern_base", "from gesta.compat.trustgraph.agent.orchestrator.pattern_base"),
    (r"from \.\.tool_filter", "from gesta.compat.trustgraph.agent.tool_filter"),
    (r"from (?:\.\.react\.|\. ?)types", "from gesta.compat.trustgraph.agent.react.types"),
    (r"from \.\.react\.agent_manager", "from agent_manager"),
    (r"from \.streaming_parser", "from streaming_parser"),
)
"""All that is changed in their files: which modules they import."""
PROMPTS: dict[str, Any] = {
    "agent-react": "Think, then act.",
    "plan-create": {"prompt": "Plan.", "response-type": "json"},
    "plan-step-execute": {"prompt": "Choose a tool.", "response-type": "json"},
    "plan-synthesise": "Sum up.",
    "supervisor-decompose": {"prompt": "Divide.", "response-type": "json"},
    "supervisor-synthesise": "Sum up.",
}


def says(messages: list[dict[str, Any]], header: Any) -> str:
    """Stand in for the model."""
    given = json.loads(messages[-1]["content"])
    if given.get("question") in PLACES:  # a sub-agent asks
        return found_by_one(given)
    match header.meta["prompt"]["name"]:
        case "agent-react" if "tools" in given and len(given["history"]) < 2:
            place = ("attic", "cellar")[len(given["history"])]
            return f'Thought: The {place} next.\nAction: fetch\nArgs: {{"place": "{place}"}}'
        case "agent-react" if "tools" in given:
            return f"Thought: I know.\nFinal Answer: {' and '.join(each['observation'] for each in given['history'])}"
        case "agent-react" if len(given["history"]) < 2:
            place = ("attic", "cellar")[len(given["history"])]
            return json.dumps({"thought": f"The {place} next.", "name": "fetch", "arguments": {"place": place}})
        case "agent-react":
            return json.dumps({"thought": "", "final": " and ".join(each["observation"] for each in given["history"])})
        case "supervisor-decompose":
            return json.dumps(PLACES)
        case "supervisor-synthesise":
            return " and ".join(each["result"] for each in given["results"])
        case "plan-create":
            return '[{"goal": "attic"}, {"goal": "cellar"}]'
        case "plan-step-execute":
            return json.dumps({"tool": "fetch", "arguments": {"place": given["goal"]}})
    steps = given["steps"]
    return " and ".join(each["result"] if isinstance(each, dict) else each[1] for each in steps)


def found_by_one(given: Mapping[str, Any]) -> str:
    """Look at one place, then answer; in words or in JSON, as the pattern reads it."""
    place, seen = given["question"], [each["observation"] for each in given["history"]]
    if "tools" in given:
        written = f"Final Answer: {seen[0]}" if seen else f'Action: fetch\nArgs: {{"place": "{place}"}}'
        return f"Thought: The {place}.\n{written}"
    act: dict[str, Any] = {"final": seen[0]} if seen else {"name": "fetch", "arguments": {"place": place}}
    return json.dumps({"thought": f"The {place}.", **act})


def theirs(name: str, folder: Path) -> type[PatternBase]:
    """Load a pattern of TrustGraph with its imports changed."""
    source = Path(os.environ["GESTA_TRUSTGRAPH"]) / "trustgraph-flow" / "trustgraph" / "agent"
    for path in (
        source / "react" / "agent_manager.py",
        source / "react" / "streaming_parser.py",
        *(source / "orchestrator" / f"{each}.py" for each, _ in THEIRS.values()),
    ):
        text = path.read_text(encoding="utf-8")
        for old, new in CHANGED:
            text = re.sub(old, new, text)
        (folder / path.name).write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    module, made = THEIRS[name]
    found: type[PatternBase] = getattr(importlib.import_module(module), made)
    return found


class Effects:
    """What was fetched, in a file that outlives the process: a line with key and place for each."""

    def __init__(self, folder: Path, deaths: int) -> None:
        self.path, self.deaths = folder / "effects", deaths

    def rows(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def add(self, key: str, place: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{key} {place}\n")
        if len(self.rows()) <= self.deaths:
            os.kill(os.getpid(), signal.SIGKILL)


def agent_of(name: str, folder: Path, deaths: int = 0) -> gesta.Agent[str]:
    """Make the agent of a pattern."""
    effects = Effects(folder, deaths)

    def fetched(key: str) -> Any:
        place = next((place for each, place in effects.rows() if each == key), None)
        return gesta.NotDone() if place is None else gesta.Done(f"gold of the {place}")

    @gesta.tool(effect="once", reconcile=fetched)
    async def fetch(place: str, context: gesta.Context) -> str:
        """Fetch what is there."""
        effects.add(context.key, place)
        return f"gold of the {place}"

    base = {"react": React, "plan": Plan, "supervisor": Supervisor}.get(name) or theirs(name, folder)
    reacting = theirs("their-react", folder) if name.startswith("their") else React

    class Prompted(base):  # type: ignore[misc, valid-type]
        prompts: Mapping[str, Any] = PROMPTS
        patterns: Mapping[str, type[PatternBase]] = {"react": type("R", (reacting,), {"prompts": PROMPTS})}

    made: gesta.Agent[str] = Prompted.agent("seeker", gesta.function(says), tools=[fetch])
    return made


def main(name: str, folder: str, deaths: str) -> None:
    """Run it, or go on with it."""
    agent = agent_of(name, Path(folder), int(deaths))
    events: list[gesta.Event] = []
    with gesta.open_sync(f"{folder}/r.gesta") as record:  # with a listener, so that it streams
        outcome = record.run(agent, "Where is gold?", session="s", key="m", listener=events.append)
    told = "".join(each.content for each in events if each.type == "answer" and each.run == outcome.run)
    print(json.dumps([outcome.reason, outcome.answer, told, outcome.error and outcome.error.message]))


if __name__ == "__main__":
    main(*sys.argv[1:])
