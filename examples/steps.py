"""Read a run as LangChain's actions and observations, as its JSON, and as the messages of a scratchpad.

Prints:
    weather {'city': 'Rome'} -> Rome: dry (ok)
    weather {'city': 'Oslo'} -> Oslo: dry (ok)
    finish: Both are dry.
    one message log: True
    the same steps come back: True
    ai, tool, tool
"""

import gesta
from gesta.compat.langchain.agents import AgentActionMessageLog, AgentFinish, AgentStep
from gesta.compat.langchain.lc import from_lc, to_lc
from gesta.compat.langchain.scratchpads import format_to_tool_messages
from gesta.compat.langchain.steps import steps


@gesta.tool(effect="pure")
def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"{city}: dry"


calls = [gesta.call("weather", city="Rome"), gesta.call("weather", city="Oslo")]
agent = gesta.Agent("guide", model=gesta.scripted(calls, "Both are dry."), tools=[weather])

if __name__ == "__main__":
    gesta.run_sync(agent, "Do I need an umbrella?", record="trip.gesta", session="s")
    with gesta.open_sync("trip.gesta") as record:
        found = steps(record.read(record.find("s").run))
    taken = [step for step in found if isinstance(step, AgentStep)]
    for step in taken:
        print(step.action.tool, step.action.tool_input, "->", step.observation, f"({step.outcome})")
    for last in found:
        if isinstance(last, AgentFinish):
            print("finish:", last.return_values["output"])
    logs = [step.action.message_log for step in taken if isinstance(step.action, AgentActionMessageLog)]
    print("one message log:", logs[0] is logs[1])
    print("the same steps come back:", from_lc(to_lc(found)) == found)
    print(", ".join(message.type for message in format_to_tool_messages(taken)))
