"""What each writing tool checks and changes, in both dialects.

Every function makes all its checks before its first change, raises `RetailError` with the text in tau-bench's words
where a check fails (`Rules.error` turns it into the dialect's), and returns the changed record.
"""

from typing import Any

from benchmarks.retail.corpus import Dialect
from benchmarks.retail.world import Record, Table, World

REASONS = ("no longer needed", "ordered by mistake")
ADDRESS: tuple[str, ...] = ("address1", "address2", "city", "state", "country", "zip")
"""The fields of an address in the order of the tools' parameters; tau keeps it, tau2 orders them by name."""
CENTS = 2
"""Decimal digits of an amount of money, in dollars."""


class RetailError(Exception):
    """A tool refused; the text is what the agent reads after `Error: `."""


class Rules:
    """The shop's rules for one world in one dialect.

    Args:
        world: The database to read and change; changes must run inside `world.apply`.
        dialect: "tau" (tau-bench) or "tau2" (tau2-bench): they differ in texts, in details of the checks and in shape.
    """

    def __init__(self, world: World, dialect: Dialect) -> None:
        self.world = world
        self.tau2 = dialect == "tau2"

    def error(self, text: str) -> RetailError:
        """Return the error for a text in tau-bench's words; tau2-bench begins it with a capital."""
        return RetailError(text[:1].upper() + text[1:] if self.tau2 else text)

    def record(self, table: Table, key: str) -> Record:
        """Return the user, order or product of an id."""
        record = self.world.get(table, key)
        if record is None:
            raise self.error(f"{table.removesuffix('s')} not found")
        return record

    def variant(self, item_id: str) -> Record:
        """Return the variant of an item id, of whatever product (tau2 only)."""
        for product in self.world.records("products").values():
            if item_id in product["variants"]:
                return dict(product["variants"][item_id])
        raise self.error("item not found")

    def cancel(self, order_id: str, reason: str) -> Record:
        """Cancel a pending order and refund every payment; gift cards at once."""
        order = self.record("orders", order_id)
        if order["status"] != "pending":
            raise self.error("non-pending order cannot be cancelled")
        if reason not in REASONS:
            raise self.error("invalid reason")
        user = self.record("users", order["user_id"])
        refunds = []
        for payment in order["payment_history"]:
            refunds.append(_entry("refund", payment["amount"], payment["payment_method_id"]))
            self._pay_in(user, payment["payment_method_id"], payment["amount"])
        order["payment_history"].extend(refunds)
        order["status"] = "cancelled"
        order["cancel_reason"] = reason
        return self._save(order, user)

    def set_order_address(self, order_id: str, address: tuple[str, ...]) -> Record:
        """Replace the address of a pending order; in tau2 also of one whose items were modified."""
        order = self._modifiable(order_id)
        order["address"] = self._address(address)
        return self._save(order)

    def set_user_address(self, user_id: str, address: tuple[str, ...]) -> Record:
        """Replace the default address of a user."""
        user = self.record("users", user_id)
        user["address"] = self._address(address)
        self.world.put("users", user_id, user)
        return user

    def set_payment(self, order_id: str, payment_method_id: str) -> Record:
        """Charge a pending order to another payment method and refund the first."""
        order = self._modifiable(order_id)
        user, method = self._method(order, payment_method_id)
        history = order["payment_history"]
        if len(history) != 1 or history[0]["transaction_type"] != "payment":
            raise self.error("there should be exactly one payment for a pending order")
        old, amount = history[0]["payment_method_id"], history[0]["amount"]
        if old == payment_method_id:
            raise self.error("the new payment method should be different from the current one")
        self._require_cover(method, amount, "the order")
        history += [_entry("payment", amount, payment_method_id), _entry("refund", amount, old)]
        self._pay_in(user, payment_method_id, -amount)
        self._pay_in(user, old, amount)
        return self._save(order, user)

    def modify_items(self, order_id: str, item_ids: list[str], new_item_ids: list[str], method_id: str) -> Record:
        """Replace items of a pending order, once, and settle the difference in price at once.

        tau2 has a quirk that recordings depend on: each item gets the price and options of the LAST new variant.
        """
        order = self.record("orders", order_id)
        if order["status"] != "pending":
            raise self.error("non-pending order cannot be modified")
        self._require_items(order, item_ids, "{} not found")
        if len(item_ids) != len(new_item_ids):
            raise self.error("the number of items to be exchanged should match")
        if self.tau2 and any(old == new for old, new in zip(item_ids, new_item_ids, strict=True)):
            raise self.error("the new item id should be different from the old item id")
        variants, difference = self._replacements(order, item_ids, new_item_ids)
        user, method = self._method(order, method_id)
        self._require_cover(method, difference, "the new item")
        kind = "payment" if difference > 0 else "refund"
        order["payment_history"].append(_entry(kind, abs(difference), method_id))
        self._pay_in(user, method_id, -difference)
        for item_id, new_id, variant in zip(item_ids, new_item_ids, variants, strict=True):
            item = _item(order, item_id)
            source = variants[-1] if self.tau2 else variant
            item.update(item_id=new_id, price=source["price"], options=source["options"])
        order["status"] = "pending (item modified)"
        return self._save(order, user)

    def exchange_items(self, order_id: str, item_ids: list[str], new_item_ids: list[str], method_id: str) -> Record:
        """Note an exchange on a delivered order; items and balances stay as they are."""
        order = self.record("orders", order_id)
        if order["status"] != "delivered":
            raise self.error("non-delivered order cannot be exchanged")
        self._require_items(order, item_ids, "Number of {} not found." if self.tau2 else "{} not found")
        if len(item_ids) != len(new_item_ids):
            full_stop = "." if self.tau2 else ""
            raise self.error(f"the number of items to be exchanged should match{full_stop}")
        _, difference = self._replacements(order, item_ids, new_item_ids)
        difference = round(difference, CENTS)
        _, method = self._method(order, method_id)
        self._require_cover(method, difference, "the price difference")
        order["status"] = "exchange requested"
        order["exchange_items"] = sorted(item_ids)
        order["exchange_new_items"] = sorted(new_item_ids)
        order["exchange_payment_method_id"] = method_id
        order["exchange_price_difference"] = difference
        return self._save(order)

    def return_items(self, order_id: str, item_ids: list[str], method_id: str) -> Record:
        """Note a return on a delivered order; refunds come later, so balances stay as they are."""
        order = self.record("orders", order_id)
        if order["status"] != "delivered":
            raise self.error("non-delivered order cannot be returned")
        _, method = self._method(order, method_id)
        original = method_id == order["payment_history"][0]["payment_method_id"]
        if not original and not self._is_gift_card(method):
            either, or_card = ("", "") if self.tau2 else ("either ", " or a gift card")
            raise self.error(f"payment method should be {either}the original payment method{or_card}")
        self._require_items(order, item_ids, "some item not found")
        order["status"] = "return requested"
        order["return_items"] = sorted(item_ids)
        order["return_payment_method_id"] = method_id
        return self._save(order)

    def _require_items(self, order: Record, item_ids: list[str], text: str) -> None:
        """Raise unless every item is in the order as often as asked for; `{}` in the text is the item's id."""
        present = [item["item_id"] for item in order["items"]]
        for item_id in item_ids:
            if item_ids.count(item_id) > present.count(item_id):
                raise self.error(text.format(item_id))

    def _require_cover(self, method: Record, amount: float, purpose: str) -> None:
        """Raise if a payment method is a gift card with less than an amount in dollars."""
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise self.error(f"insufficient gift card balance to pay for {purpose}")

    def _modifiable(self, order_id: str) -> Record:
        """Return an order whose address and payment may be changed."""
        order = self.record("orders", order_id)
        pending = "pending" in order["status"] if self.tau2 else order["status"] == "pending"
        if not pending:
            raise self.error("non-pending order cannot be modified")
        return order

    def _method(self, order: Record, method_id: str) -> tuple[Record, Record]:
        """Return the order's user, and that one of their payment methods."""
        user = self.record("users", order["user_id"])
        if method_id not in user["payment_methods"]:
            raise self.error("payment method not found")
        return user, user["payment_methods"][method_id]

    def _replacements(self, order: Record, old: list[str], new: list[str]) -> tuple[list[Record], float]:
        """Return the available new variants of the same products, and the sum of (new - old) prices, unrounded."""
        variants, difference = [], 0.0
        for old_id, new_id in zip(old, new, strict=True):
            item = _item(order, old_id)
            variant = self.record("products", item["product_id"])["variants"].get(new_id)
            if variant is None and self.tau2:
                raise self.error("variant not found")
            if variant is None or not variant["available"]:
                raise self.error(f"new item {new_id} not found or available")
            variants.append(variant)
            difference += variant["price"] - item["price"]
        return variants, difference

    def _is_gift_card(self, method: Record) -> bool:
        """Whether a method is a gift card: tau goes by the id, tau2 by the source."""
        return method["source"] == "gift_card" if self.tau2 else "gift_card" in method["id"]

    def _pay_in(self, user: Record, method_id: str, amount: float) -> None:
        """Add an amount in dollars (negative: take it) to a gift card's balance; no effect on other methods."""
        method = user["payment_methods"][method_id]
        if self._is_gift_card(method):
            method["balance"] = round(method["balance"] + amount, CENTS)

    def _address(self, values: tuple[str, ...]) -> dict[str, str]:
        """Return an address, given as the values of `ADDRESS`, with the keys in the dialect's order."""
        address = dict(zip(ADDRESS, values, strict=True))
        return dict(sorted(address.items())) if self.tau2 else address

    def _save(self, order: Record, user: Record | None = None) -> Record:
        """Write the order, and its user if that changed too, and return the order."""
        self.world.put("orders", order["order_id"], order)
        if user is not None:
            self.world.put("users", order["user_id"], user)
        return order


def _item(order: Record, item_id: str) -> dict[str, Any]:
    """Return the first item of that id in an order."""
    return next(item for item in order["items"] if item["item_id"] == item_id)


def _entry(kind: str, amount: float, method_id: str) -> Record:
    """Return one entry of a payment history; the amount in dollars."""
    return {"transaction_type": kind, "amount": amount, "payment_method_id": method_id}
