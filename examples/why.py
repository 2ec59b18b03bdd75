"""Show which entries an answer was made from, back to the question, computed from the causes on record.

Prints:
    Question      Can I send the lamp back?
    Analysis      <- Question
    ToolUse       <- Analysis        order {"number": 42}
    ToolUse       <- Analysis        policy {}
    Observation   <- ToolUse         order 42: a lamp, bought on 3 May
    Observation   <- ToolUse         30 days for everything but bulbs
    Conclusion    <- Observation, Observation Yes, until 2 June.
    without an explanation: 0 entries, 0 answers
"""

import gesta
from gesta.views.lineage import explain, unexplained


@gesta.tool(effect="pure")
async def order(number: int) -> str:
    """Read an order."""
    return f"order {number}: a lamp, bought on 3 May"


@gesta.tool(effect="pure")
async def policy() -> str:
    """Read how long things can be sent back."""
    return "30 days for everything but bulbs"


looks = [gesta.call("order", number=42), gesta.call("policy")]
agent = gesta.Agent("desk", model=gesta.scripted(looks, "Yes, until 2 June."), tools=[order, policy])

if __name__ == "__main__":
    outcome = gesta.run_sync(agent, "Can I send the lamp back?", record="desk.gesta")
    with gesta.open_sync("desk.gesta") as record:
        entries = record.read(outcome.run)
    answer = next(entry.seq for entry in entries if entry.kind == "assistant")
    explanation = explain(entries, answer)
    types = {node.id: node.type for node in explanation.nodes}
    for node in explanation.nodes:
        sources = ", ".join(types[source] for source in node.derived_from)
        print(
            f"{node.type:<13} {f'<- {sources}':<18} {node.text}".rstrip() if sources else f"{node.type:<13} {node.text}"
        )
    found = unexplained(entries)
    print(f"without an explanation: {len(found.entries)} entries, {len(found.answers)} answers")
