"""A turn that may use so many tokens: it stops before the request that could go beyond, and says so.

Prints:
    budget: 1,200 of 2,000 tokens are gone
    answered: 400 of 2,000 tokens are gone
"""

import gesta

USAGE = {"prompt_tokens": 300, "completion_tokens": 100}


@gesta.tool(effect="pure")
def look(at: int) -> str:
    """Look somewhere."""
    return f"nothing at {at}"


def agent(*looks: int) -> gesta.Agent:
    """Make an agent that looks so often before it answers."""
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
