"""Receive the events of a turn while it runs: words of the answer, results of tools, and the sources of the answer.

Prints:
    observation: a cat
    answer: I see a cat.
    explained by: Question Analysis ToolUse Observation Conclusion
"""

import asyncio

import gesta


@gesta.tool(effect="pure")
async def look() -> str:
    """Look out of the window."""
    return "a cat"


agent = gesta.Agent("watch", model=gesta.scripted(gesta.call("look"), "I see a cat."), tools=[look])


async def main() -> None:
    """Print the events of one turn."""
    nodes, words = [], []
    async with gesta.open() as record:
        async for event in record.stream(agent, "What do you see?"):
            if event.type == "observation":
                print("observation:", event.content)
            if event.type == "answer":
                words.append(event.content)
            if event.explain_graph is not None:
                nodes.append(event.explain_graph.node)
    print("answer:", "".join(words))
    print("explained by:", *nodes)


if __name__ == "__main__":
    asyncio.run(main())
