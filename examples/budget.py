"""A turn with a token budget stops before the request that could exceed it, and its outcome says so.

Prints:
    budget: 1,200 of 2,000 tokens are gone
    answered: 400 of 2,000 tokens are gone
"""

import gesta

USAGE = {"prompt_tokens": 300, "completion_tokens": 100}


@gesta.tool(effect="pure")
def look(at: int) -> str:
    """Look at one place."""
    return f"nothing at {at}"


def agent(*looks: int) -> gesta.Agent:
    """Return an agent that calls `look` once for each number in `looks`, and then answers."""
    script = [gesta.reply(calls=[gesta.call("look", at=at)], usage=USAGE) for at in looks]
    return gesta.Agent(
        "seeker",
        model=gesta.scripted(*script, gesta.reply("Nothing there.", usage=USAGE)),
        tools=[look],
        settings={"max_tokens": 500},
        policy=gesta.Policy(budget=gesta.Budget(tokens=2000)),
    )


if __name__ == "__main__":
    for looks in (range(9), range(0)):
        outcome = gesta.run_sync(agent(*looks), "Look around.", record=":memory:")
        assert outcome.spent is not None
        print(f"{outcome.reason}: {outcome.spent.tokens:,} of 2,000 tokens are gone")
