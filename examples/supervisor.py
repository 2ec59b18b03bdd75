"""A supervisor lets three researchers read a bank's documents at the same time, and answers from their findings.

Prints:
    Leo can join at 16; the youth account costs nothing, and cash abroad costs 2%.
    Finding   <- fees.md 1      A youth account costs nothing until the 18th birthday.
    Finding   <- abroad.md 2    Cash abroad costs 2% of the amount, at least 3 euros.
    Finding   <- joining.md 1   From 14, a person joins with the signature of one parent.
"""

import json
from typing import Any

import gesta
from gesta.kinds import Hit
from gesta.patterns.supervisor import supervisor

DOCUMENTS = {
    "fees.md": ["A youth account costs nothing until the 18th birthday.", "After that it costs 4 euros a month."],
    "abroad.md": ["Payments by card are free everywhere.", "Cash abroad costs 2% of the amount, at least 3 euros."],
    "joining.md": ["From 14, a person joins with the signature of one parent.", "Below 14, both parents come along."],
}


@gesta.tool(effect="pure")
async def search(words: str, context: gesta.Context) -> str:
    """Find the passage that shares most words with a query."""
    wanted = set(words.lower().split())
    passages = [(name, n, text) for name, texts in DOCUMENTS.items() for n, text in enumerate(texts, 1)]
    name, n, text = max(passages, key=lambda each: len(wanted & set(each[2].lower().split())))
    context.found(words, [Hit(document=name, chunk=str(n))])
    return text


def think(messages: list[dict[str, Any]], header: gesta.kinds.RequestHeaderContent) -> Any:
    """Act as a model: the reply depends on which prompt of the pattern is given."""
    last = messages[-1]
    match (header.meta or {})["prompt"]["name"], last["role"]:
        case "decompose", _:
            goals = ["youth account costs nothing until", "cash abroad costs", "joins with one parent from 14"]
            return json.dumps({"goals": goals})
        case "research", "user":
            return gesta.call("search", words=last["content"])
        case "research", _:
            return last["content"]
    return "Leo can join at 16; the youth account costs nothing, and cash abroad costs 2%."


agent = supervisor("bank", gesta.function(think), tools=[search])

if __name__ == "__main__":
    outcome = gesta.run_sync(agent, "Leo is 16: can he join, and what will it cost?", record="bank.gesta")
    print(outcome.answer)
    with gesta.open_sync("bank.gesta") as record:
        answer = next(each for each in record.read(outcome.run) if each.kind == "assistant")
        nodes = record.explain(answer).nodes
    passages = {node.run: node.text.split("\n")[1] for node in nodes if node.type == "Retrieval"}
    for finding in sorted((node for node in nodes if node.type == "Finding"), key=lambda node: node.text):
        source = next(id.partition(".")[0] for id in finding.derived_from)
        print(f"{finding.type:<9} {'<- ' + passages[source]:<17} {finding.text}")
