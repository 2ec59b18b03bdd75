"""One conversation in the request formats of four providers. No key is needed, because nothing is sent.

Prints:
    openai            ['user', 'assistant', 'tool']
    openai-responses  ['user', 'function_call', 'function_call_output']
    anthropic         ['user', 'assistant', 'user']
    google            ['user', 'model', 'user']
"""

import json

import gesta
from gesta.address import formatter
from gesta.kinds import Kind
from gesta.models.hosted import unsent
from gesta.prompt import rebuild


@gesta.tool(effect="pure")
def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"{city}: 21 degrees, dry"


def main() -> None:
    """Print the roles in the last request of a run, as four providers would get it."""
    model = gesta.scripted(gesta.call("weather", city="Rome"), "Rome is dry.")
    agent = gesta.Agent("guide", model=model, tools=[weather])
    outcome = gesta.run_sync(agent, "What do I need in Rome?", record="trip.gesta", session="trip")
    with gesta.open_sync("trip.gesta") as record:
        entries = record.read(outcome.run)
    last = [entry.seq for entry in entries if entry.kind is Kind.Request][-1]
    for address in ("openai:gpt-5-mini", "openai-responses:gpt-5-mini", "anthropic:claude-x", "google:gemini-x"):
        body = json.loads(rebuild(entries, last, formatter("tool-calls"), unsent(address)).body())
        history = next(body[name] for name in ("messages", "input", "contents") if name in body)
        print(f"{address.partition(':')[0]:17}", [each.get("role") or each["type"] for each in history])


if __name__ == "__main__":
    main()
