"""Measures other systems beside Gesta, one by one. `just peers` installs them into an environment of their own."""

import json
import subprocess
from pathlib import Path
from typing import Any

PEERS = {
    "LangGraph, nothing kept": "langgraph",
    "LangGraph, SQLite, sync": "langgraph+",
    "Agno, nothing kept": "agno",
    "Agno, run rows": "agno+",
    "Pydantic AI, nothing kept": "pydantic-ai",
    "OpenAI Agents, nothing kept": "openai-agents",
    "OpenAI Agents, SQLite session": "openai-agents+",
}
SIZES = (10, 100, 300, 1000)
SECONDS = 180.0
"""A measurement that takes more seconds is stopped, and a note says so."""
LOADS = Path(__file__).with_name("_peer_loads.py")


def side_by_side(environment: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Measure each system at each size. Return the figures, and notes about what could not be measured."""
    python = environment / "bin" / "python"
    if not python.exists():
        return [], [f"No peers: {environment} is no environment. Make it with `just peers`."]
    found, notes = [], []
    for name, load in PEERS.items():
        for steps in SIZES:
            try:
                done = subprocess.run(
                    [str(python), str(LOADS), load, str(steps)],
                    capture_output=True,
                    text=True,
                    timeout=SECONDS,
                    check=True,
                )
            except subprocess.TimeoutExpired:
                notes.append(f"{name}: N={steps} took more than {SECONDS:.0f} s.")
                break
            except subprocess.CalledProcessError as failed:
                notes.append(f"{name}: not measured at N={steps}: {(failed.stderr.splitlines() or ['?'])[-1]}")
                break
            found.append({"peer": name, "steps": steps} | json.loads(done.stdout.splitlines()[-1]))
    return found, notes
