"""Reads tau-bench's few-shot transcripts, whose calls are lost, as conversations with calls told from their results.

The text has only `assistant: None` where a call was made, and then its result. The result of nearly every tool says
which call it answers: an order that is shown first was looked up, one that is shown with other items was modified.
What it does not say (a sum's terms, a thought) is `?`. The data are older than the database of the corpus, so the tools
of these conversations recite what is on record instead of running.
"""

import gzip
import json
import re
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from benchmarks.retail.corpus import Conversation, Message, RecordedCall, corpus_folder
from benchmarks.retail.rules import ADDRESS
from gesta.codec.rows import canonical

FILE = "tau-bench/few_shot-retail.jsonl.gz"
ROLE = re.compile(r"(?:\A|\n)(system|user|assistant|tool): ")
LOST = "?"
"""An argument that no result tells."""
Results = dict[tuple[str, bytes], deque[str]]
"""Recorded results by name and arguments of the call, in order."""
Call = tuple[str, dict[str, Any]]
"""Name and arguments."""


def load_transcripts() -> tuple[Conversation, ...]:
    """Load all transcripts, in recorded order."""
    with gzip.open(corpus_folder() / FILE, "rt", encoding="utf-8") as lines:
        return tuple(_conversation(place, json.loads(line)["messages_display"]) for place, line in enumerate(lines))


def recorded_results(conversation: Conversation) -> Results:
    """Give what each call gave."""
    found: Results = defaultdict(deque)
    for call, answer in conversation.answered():
        found[call.name, canonical(call.args)].append(answer.content or "")
    return found


def _conversation(place: int, text: str) -> Conversation:
    parts = ROLE.split(text)[1:]
    said = list(zip(parts[::2], parts[1::2], strict=True))
    teller, messages, calls = Teller(), list[Message](), list[RecordedCall]()
    for number, (role, words) in enumerate(said):
        if role == "tool":
            messages.append(Message("tool", words, call_id=calls.pop(0).id, error=words.startswith("Error: ")))
            continue
        if role == "user":
            teller.asked = words
        results = said[number + 1 : next((n for n in range(number + 1, len(said)) if said[n][0] != "tool"), len(said))]
        told = [teller.call(result) for _, result in results]
        calls = [RecordedCall(f"call_{number + n}", *call) for n, call in enumerate(told)]
        content = None if role == "assistant" and words == "None" else words
        messages.append(Message(role, content, calls=tuple(calls)))  # type: ignore[arg-type]
    return Conversation(f"few-shot/{place}", "few-shot", FILE, tuple(messages), None, ())


class Teller:
    """Tells calls from their results, and from what was shown before."""

    def __init__(self) -> None:
        self.asked = ""
        """What the customer said last."""
        self._user = LOST
        self._order = LOST
        self._seen: dict[str, Any] = {}

    def call(self, result: str) -> Call:
        """Tell the call that gave a result."""
        try:
            value = json.loads(result)
        except ValueError:
            return self._of_text(result)
        if not isinstance(value, dict):
            return "calculate", {"expression": LOST}
        if "variants" in value:
            return "get_product_details", {"product_id": value["product_id"]}
        if "order_id" in value:
            return self._of_order(value)
        if "payment_methods" not in value:
            return "list_all_product_types", {}
        before, self._seen[self._user] = self._seen.get(self._user, value), value
        if before["address"] != value["address"]:
            return "modify_user_address", {"user_id": self._user} | _address(value)
        return "get_user_details", {"user_id": self._user}

    def _of_order(self, order: dict[str, Any]) -> Call:
        self._order = order["order_id"]
        before, self._seen[self._order] = self._seen.get(self._order, {}), order
        self._user = order["user_id"]
        new = [tool for field, tool in MARKS.items() if field in order and field not in before]
        name = new[0] if new else next((tool for tool, tell in CHANGES.items() if before and tell(before, order)), None)
        if name is None:
            return "get_order_details", {"order_id": self._order}
        return name, {"order_id": self._order} | ARGUMENTS[name](before, order)

    def _of_text(self, result: str) -> Call:
        match result:
            case "":
                return "think", {"thought": LOST}
            case "Transfer successful":
                return "transfer_to_human_agents", {"summary": LOST}
            case "Error: order not found":
                asked = re.findall(r"#?W\d+", self.asked)
                return "get_order_details", {"order_id": asked[-1] if asked else LOST}
        if result.startswith("Error: ") and result != "Error: user not found":
            name = "return_delivered_order_items" if "payment method" in result else "exchange_delivered_order_items"
            items = {"item_ids": [LOST], "new_item_ids": [LOST]} if "exchange" in name else {"item_ids": [LOST]}
            return name, {"order_id": self._order, **items, "payment_method_id": LOST}
        self._user = LOST if result.startswith("Error: ") else result
        email = re.search(r"[\w.]+@[\w.]+\w", self.asked)
        if email is not None:
            return "find_user_id_by_email", {"email": email[0]}
        zips = re.findall(r"\b\d{5}\b", self.asked)
        names = [part.capitalize() for part in result.split("_")[:2]] if self._user != LOST else [LOST, LOST]
        found = {"first_name": names[0], "last_name": names[-1], "zip": zips[-1] if zips else LOST}
        return "find_user_id_by_name_zip", found


Order = dict[str, Any]


def _address(record: Order) -> dict[str, str]:
    given = record["address"]
    return {name: given.get(name) or given.get("province", "") for name in ADDRESS}


def _changed_items(before: Order, order: Order) -> dict[str, Any]:
    pairs = zip(before.get("items", ()), order["items"], strict=False)
    other = [(old["item_id"], new["item_id"]) for old, new in pairs if old["item_id"] != new["item_id"]]
    paid = order["payment_history"][-1]["payment_method_id"]
    return {"item_ids": [old for old, _ in other], "new_item_ids": [new for _, new in other], "payment_method_id": paid}


def _paid(_: Order, order: Order) -> dict[str, Any]:
    paid = [each for each in order["payment_history"] if each["transaction_type"] == "payment"]
    return {"payment_method_id": paid[-1]["payment_method_id"]}


def _given(prefix: str, *fields: str) -> Callable[[Order, Order], dict[str, Any]]:
    names = {"items": "item_ids", "new_items": "new_item_ids"}
    return lambda _, order: {names.get(field, field): order[f"{prefix}_{field}"] for field in fields}


def _other(field: str) -> Callable[[Order, Order], bool]:
    return lambda before, order: bool(before[field] != order[field])


MARKS = {
    "cancel_reason": "cancel_pending_order",
    "return_items": "return_delivered_order_items",
    "exchange_items": "exchange_delivered_order_items",
}
"""Fields that an order has since a tool was called."""
CHANGES = {
    "modify_pending_order_items": _other("items"),
    "modify_pending_order_payment": _other("payment_history"),
    "modify_pending_order_address": _other("address"),
}
"""By what an order shows that it was changed."""
ARGUMENTS: dict[str, Callable[[Order, Order], dict[str, Any]]] = {
    "cancel_pending_order": lambda _, order: {"reason": order["cancel_reason"]},
    "return_delivered_order_items": _given("return", "items", "payment_method_id"),
    "exchange_delivered_order_items": _given("exchange", "items", "new_items", "payment_method_id"),
    "modify_pending_order_items": _changed_items,
    "modify_pending_order_payment": _paid,
    "modify_pending_order_address": lambda _, order: _address(order),
}
