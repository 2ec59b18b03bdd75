"""A user's program: hooks with deps of a type, async or not."""

import gesta
from gesta.hooks import Add, AskAgain, Asking, AskPerson, Calling, Change, Hooks, Refuse


class Shop:
    """What the program gives."""

    limit = 500


def rules(context: gesta.Context[Shop]) -> str:
    """Make instructions."""
    return f"Nothing above {context.deps.limit} euros, {context.user}."


async def later(context: gesta.Context[Shop]) -> str:
    """Make them later."""
    return rules(context)


def polite(text: str, context: gesta.Context) -> Refuse | None:
    """Look at a message."""
    return Refuse("Please be polite.") if context.user is None and "!" in text else None


def bounded(call: Calling, context: gesta.Context[Shop]) -> Refuse | AskPerson | Change | None:
    """Look at a call."""
    if call.args.get("euros", 0) > context.deps.limit:
        return Refuse("Too much.")
    return AskPerson("why not") if call.effect == "once" else Change({**call.args, "euros": 1})


async def judged(answer: str, context: gesta.Context) -> AskAgain | Change | None:
    """Look at an answer."""
    ended = await context.call(judge, answer)
    return AskAgain("Be shorter.") if ended.answer == "long" else None


judge = gesta.Agent("judge", model="openai:gpt-5-mini", instructions=rules)
hooks = Hooks(message=polite, request=lambda asking, _: Add(f"{asking.number}"), call=bounded, answer=judged)
agent = gesta.Agent("desk", model="openai:gpt-5-mini", instructions=later, hooks=hooks, deps=Shop)
print(gesta.run_sync(agent, "Hi", deps=Shop(), model="openai:gpt-5", settings={"temperature": 0}).value.upper())


def asked(asking: Asking, _context: gesta.Context[object]) -> Add | Refuse | None:
    """Look at a request."""
    return Refuse("Enough.") if asking.number > 9 else None


print(Hooks(request=asked).request)
