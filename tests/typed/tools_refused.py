"""Lines of a user's program that a checker refuses: each is marked."""

import gesta


@gesta.tool
def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


@gesta.tool(effect="once")
async def send(to: str) -> str:
    """Send."""
    return to


@gesta.tool(effect="twice")  # refused: no such effect
def twice() -> str:
    """Do it twice."""
    return ""


@gesta.tool(efect="once")  # refused: no such option
def misspelt() -> str:
    """Misspell."""
    return ""


@gesta.tool
def priced(sku: str, context: gesta.Context[list[str]]) -> str:
    """Misuse the deps."""
    context.deps.price(sku)  # refused: a list has no such method
    number: int = context.deps[0]  # refused: it holds texts
    return sku + str(number)


print(add("1", 2))  # refused: text is not an integer
print(add(c=1))  # refused: no such parameter
print(add(1).upper())  # refused: an integer has no such method
add.nme  # noqa: B018 # refused: no such field


async def main(context: gesta.Context) -> None:
    """Misuse an async tool, and the context of one."""
    ended = await context.call(gesta.Agent("a", model="openai:gpt-5-mini"), "Look.")
    print(ended.reasn)  # refused: no such field
    print(ended.reason == "done")  # refused: no such reason
    context.respond(5)  # refused: no text
    number: int = await send("ann")  # refused: it returns text
    print(number, await send())  # refused: a parameter is missing
