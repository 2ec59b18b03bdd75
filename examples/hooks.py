"""Hooks check a message, a tool call and an answer, and each check is on record.

A rule checks the call before it is made. Another agent judges the answer, in a run of its own.

Prints:
    refused: There are no refunds above 500 euros.
    answered: Take a voucher for the lamp.
      call by no_large_refunds: refused
      answer by judged: again
      answer by judged: allowed
"""

import gesta
from gesta.hooks import AskAgain, Calling, Hooks, Refuse


def shown(text: str, _context: gesta.Context) -> Refuse | None:
    """Refuse a message that asks for too much money."""
    return Refuse("There are no refunds above 500 euros.") if "9000 euros" in text else None


def no_large_refunds(call: Calling, _context: gesta.Context) -> Refuse | None:
    """Refuse a call because of its arguments. The model is shown the reason."""
    return Refuse("Offer a voucher.") if call.tool == "refund" and call.args["euros"] > 500 else None


async def judged(answer: str, context: gesta.Context) -> AskAgain | None:
    """Ask another agent to judge an answer, and refuse an answer that is too long."""
    said = await context.call(judge, answer)
    return AskAgain("Be shorter.") if said.answer == "long" else None


@gesta.tool(effect="once")
def refund(euros: int) -> str:
    """Pay money back."""
    return f"{euros} euros are on their way"


judge = gesta.Agent("judge", model=gesta.function(lambda said, _: "long" if len(said[-1]["content"]) > 40 else "fine"))
script = [
    gesta.call("refund", euros=900),
    "What a pity! I can offer you a very fine voucher.",
    "Take a voucher for the lamp.",
]
desk = gesta.Agent(
    "desk",
    model=gesta.scripted(*script),
    tools=[refund],
    hooks=Hooks(message=shown, call=no_large_refunds, answer=judged),
)

if __name__ == "__main__":
    with gesta.open_sync("hooks.gesta") as record:
        refused = record.run(desk, "I want 9000 euros.")
        print(f"refused: {refused.error.message if refused.error else ''}")
        outcome = record.run(desk, "I want my 900 euros back.")
        print(f"{outcome.reason}: {outcome.answer}")
        for entry in record.read(outcome.run):
            if isinstance(entry.content, gesta.kinds.CheckContent):
                print(f"  {entry.content.point} by {entry.content.hook}: {entry.content.verdict}")
