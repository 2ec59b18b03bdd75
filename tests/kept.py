"""The record that a release leaves for all later ones to read: `just keep-record` writes it under `tests/fixtures/`.

It has a turn that was answered, one that waits for a person's word on a call, one that asks a person, and one whose call
is in doubt. A later release has to read, check and finish each of them. What a release left is never written again.
"""

import sys
import tomllib
from pathlib import Path

import gesta
from gesta.kinds import UserContent
from gesta.tools.person import ask_person


@gesta.tool(effect="pure")
def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"{city}: 21 degrees, dry"


@gesta.tool(effect="once", approval=True)
def refund(order: str, amount: float) -> str:
    """Pay money back."""
    return f"paid {amount} for {order}"


@gesta.tool(effect="once")
def send(to: str) -> str:
    """Send a letter, and lose the line."""
    raise gesta.InDoubt("the line went dead")


AGENTS = {
    "answered": gesta.Agent(
        "guide", gesta.scripted(gesta.call("weather", city="Rome"), "Rome is dry.", "It still is."), tools=[weather]
    ),
    "approval": gesta.Agent(
        "desk", gesta.scripted(gesta.call("refund", order="W1", amount=20.5), "It is paid."), tools=[refund]
    ),
    "question": gesta.Agent(
        "asker", gesta.scripted(gesta.call("ask_person", question="Which?"), "That one."), tools=[ask_person()]
    ),
    "doubt": gesta.Agent("sender", gesta.scripted(gesta.call("send", to="ann"), "It is sent."), tools=[send]),
}
"""By the name of their session. Their names, tools and scripts stay as they are: records of releases rest on them."""


def keep(path: Path) -> Path:
    """Write the record, which must not be there yet."""
    if path.exists():
        sys.exit(f"{path} is there. What a release left is never written again.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with gesta.open_sync(path) as record:
        for session, agent in AGENTS.items():
            record.run(agent, f"Begin {session}.", session=session)
        with record.span("app", session="recorded", version="1") as span:
            span.log(UserContent(value="Only recorded: \ud800, \0"), channel="chat")
    return path


if __name__ == "__main__":
    here = Path(__file__).parent
    project = tomllib.loads((here.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    print(keep(here / "fixtures" / project["version"] / "kept.gesta"), file=sys.stderr)
