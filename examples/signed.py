"""A payment waits for the head of finance. A name alone proves nothing: only a signed approval is accepted.

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

KEY = secrets.token_bytes(32)  # a real program reads it from its store of secrets, which no tool can reach


@gesta.tool(effect="once", approval=True)
def pay(cents: int) -> str:
    """Pay somebody."""
    return f"paid {cents}"


agent = gesta.Agent("clerk", model=gesta.scripted(gesta.call("pay", cents=500), "paid and thanked"), tools=[pay])


def answers(request: Asked) -> dict[str, ApprovalContent]:
    """Return three approvals, of which only the last one is accepted."""
    claim = ApprovalContent(of=request.request, verdict="approved", by="cfo")
    other = msgspec.structs.replace(request, args={"cents": 5})
    return {
        "without a token": claim,
        "signed for another sum": sign(claim, other, KEY),
        "signed": sign(claim, request, KEY),
    }


async def main() -> None:
    """Start the payment, and send one approval after another."""
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
