"""A payment waits for the head of finance: a name alone is a claim, and only a signed approval counts.

Prints:
    asked: pay {'cents': 500}
    without a token: waiting
    signed for another sum: waiting
    signed: paid and thanked
"""

import asyncio
import secrets

import msgspec

import gesta
from gesta.decide.approval import Asked, SignedApprovals, asked, sign
from gesta.kinds import ApprovalContent

KEY = secrets.token_bytes(32)  # in earnest: from where the program keeps its secrets, out of reach of every tool


@gesta.tool(effect="once", approval=True)
def pay(cents: int) -> str:
    """Pay somebody."""
    return f"paid {cents}"


agent = gesta.Agent("clerk", model=gesta.scripted(gesta.call("pay", cents=500), "paid and thanked"), tools=[pay])


def answers(request: Asked) -> dict[str, ApprovalContent]:
    """Approve in three ways, of which one counts."""
    claim = ApprovalContent(of=request.request, verdict="approved", by="cfo")
    other = msgspec.structs.replace(request, args={"cents": 5})
    return {
        "without a token": claim,
        "signed for another sum": sign(claim, other, KEY),
        "signed": sign(claim, request, KEY),
    }


async def main() -> None:
    """Ask, and send one answer after the other."""
    async with gesta.open("pay.gesta", approver=SignedApprovals({"cfo": KEY})) as record:
        outcome = await record.run(agent, "Pay the baker.", session="s", key="m0")
        (request,) = await asked(record.store, outcome.run)
        print("asked:", request.tool, request.args)
        for how, approval in answers(request).items():
            await record.send(outcome.run, approval, key=how)
            outcome = await record.resume(outcome.run, agent)
            print(f"{how}:", outcome.answer or outcome.reason)


if __name__ == "__main__":
    asyncio.run(main())
