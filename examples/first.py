"""An agent with one tool, and the kinds of entries on the record afterwards.

Prints:
    Rome is dry: no umbrella.
    begin user request-header request chat-completion tool-call attempt
    tool-result request chat-completion assistant end
"""

import gesta


@gesta.tool(effect="pure")
def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"{city}: 21 degrees, dry"


model = gesta.scripted(gesta.call("weather", city="Rome"), "Rome is dry: no umbrella.")
agent = gesta.Agent("guide", model=model, tools=[weather])

if __name__ == "__main__":
    print(gesta.run_sync(agent, "What do I need in Rome?", record="trip.gesta", session="s").answer)
    with gesta.open_sync("trip.gesta") as record:
        run = record.find("s").run
        kinds = [entry.kind for entry in record.read(run)]
        print(*kinds[:7])
        print(*kinds[7:])
