"""One agent calls another one as a tool. The second agent asks a person for approval, and both wait meanwhile.

Prints:
    triage waits: approval of pay, asked by run below: True
    approved by ann; go on with: triage
    Your 64.90 euros are on their way.
    ToolUse     refunder {"task": "Refund order 42."}
    ToolUse     pay {"order": 42, "euros": "64.90"}
    Approval    by ann
    Observation 64.90 euros paid for order 42
    Observation 64.90 euros paid for order 42.
"""

import gesta


@gesta.tool(effect="once", approval=True)
def pay(order: int, euros: str) -> str:
    """Pay money back."""
    return f"{euros} euros paid for order {order}"


refunder = gesta.Agent(
    "refunder",
    model=gesta.scripted(gesta.call("pay", order=42, euros="64.90"), "64.90 euros paid for order 42."),
    instructions="You refund what was broken, once a person has agreed.",
    tools=[pay],
)
triage = gesta.Agent(
    "triage",
    model=gesta.scripted(gesta.call("refunder", task="Refund order 42."), "Your 64.90 euros are on their way."),
    tools=[refunder.as_tool(description="Refunds an order; say its number.")],
)

with gesta.open_sync("two.gesta") as record:
    outcome = record.run(triage, "My lamp of order 42 came broken.", session="anna")
    (wait,) = outcome.waiting
    print(f"triage waits: {wait.text}, asked by run below: {wait.run != outcome.run}")
    receipt = record.approve(wait, by="ann")
    print(f"approved by {receipt.by}; go on with: {record.find(receipt.root).name}")
    outcome = record.resume(receipt.root, triage)
    print(outcome.answer)
    answer = next(entry for entry in record.read(outcome.run) if entry.kind == "assistant")
    for node in record.explain(answer).nodes:
        if node.type in ("ToolUse", "Approval", "Observation"):
            print(f"{node.type:<11} {node.text}")
