"""A user's program: a tool is called with the parameters of its function."""

from collections.abc import Sequence
from typing import assert_type

import gesta


@gesta.tool
def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


@gesta.tool(effect="once", approval=True, name="send")
async def send_mail(to: str, context: gesta.Context) -> str:
    """Send."""
    context.respond(f"sending to {to}")
    return context.key


class Shop:
    """Has methods."""

    def price(self, sku: str) -> float:
        """Price."""
        return float(len(sku))


@gesta.tool(effect="pure")
def stocked(sku: str, context: gesta.Context[Shop]) -> float:
    """Stock."""
    assert_type(context.deps, Shop)
    return context.deps.price(sku)


def anything(context: gesta.Context[object]) -> str:
    """Read the key of any call."""
    return context.key


priced = gesta.tool(Shop().price, effect="pure")
TOOLS = [add, send_mail, priced, stocked]
MORE: Sequence[gesta.Tool] = TOOLS


async def main(context: gesta.Context) -> None:
    """Call tools as the functions that they are, and an agent as a tool does."""
    ended = await context.call(helper, "Look.")
    print(ended.answer if ended.reason == "answered" else ended.error)
    assert_type(add(1, b=2), int)
    assert_type(await send_mail("ann", context), str)
    assert_type(priced("lamp"), float)
    for each in MORE:
        print(each.name, each.effect, each.args_schema)


helper = gesta.Agent("helper", model="openai:gpt-5-mini")
agent = gesta.Agent("desk", model=gesta.scripted("Hi"), tools=[*TOOLS, helper.as_tool()], deps=Shop)
print(agent.tools, gesta.Agent("desk", model=gesta.scripted("Hi"), tools=TOOLS))
