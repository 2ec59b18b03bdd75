"""The demo's shop: for each session an SQLite file and a list of started refunds, and all functions on them.

Amounts are whole cents in this file, and decimal text outside of it. The shop does not refuse to book the same refund
twice: it is Gesta that has to prevent that.
"""

import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from msgspec import Struct

ORIGINAL = Path(__file__).with_name("shop.db")
MISSING = "No shop at"
"""The beginning of the error message for a session without a shop."""

Commit = Callable[[sqlite3.Connection], None]


class Refund(Struct, frozen=True, kw_only=True):
    """A refund to book."""

    key: str
    """Idempotency key of the tool call that books this refund."""
    order_id: int
    cents: int
    reason: str
    at: datetime


class Count(Struct, frozen=True):
    """How many refunds of a session were started, and how many were booked."""

    fired: int
    """Number of lines in the file to which the tool writes before each booking."""
    booked: int
    """Number of rows in the table of refunds."""


def place(record: str, session: str) -> Path:
    """Return the path of a session's shop, a file beside the record.

    Args:
        record: path of the record's file.
    """
    name = re.sub(r"[^\w.-]", "_", f"{Path(record).stem}-{session}.shop.db")
    return Path(record).with_name(name)


def witness(shop: Path) -> Path:
    """Return the path of the file that has a line for each refund that was started."""
    return shop.with_name(shop.name + ".fired")


def copy(target: Path) -> None:
    """Copy the original shop to a new file. Raises FileExistsError and other OSError."""
    with ORIGINAL.open("rb") as original, target.open("xb") as made:
        try:
            shutil.copyfileobj(original, made)
        except OSError:
            with suppress(OSError):
                target.unlink()
            raise


def cents(amount: str) -> int:
    """Return an amount such as "64.90" in cents. Raises ValueError if it is not an amount above 0."""
    with suppress(InvalidOperation):
        value = Decimal(amount) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,2})?", amount) else Decimal(0)
        if value > 0:
            return int(value * 100)
    raise ValueError(f"{amount[:40]!r} is not an amount in euros; expected one such as '64.90'.")


def euros(amount: int) -> str:
    """Return an amount in cents as text such as "64.90"."""
    return f"{amount // 100}.{amount % 100:02}"


@contextmanager
def opened(shop: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection to a session's shop. Nothing is committed at the end of the `with` block.

    Raises LookupError if there is no shop.
    """
    if not shop.is_file():
        raise LookupError(
            f"{MISSING} {shop.name!r}. This agent works on a copy of the demo's shop beside the record, one for each "
            "session: `gesta demo` makes one."
        )
    with closing(sqlite3.connect(f"{shop.resolve().as_uri()}?mode=rw", uri=True, timeout=10)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous = FULL")
        yield connection


def customer(shop: Path, email: str) -> dict[str, Any]:
    """Return the name, the city and the orders of a customer, newest order first.

    Raises:
        LookupError: there is no such customer or no shop.
    """
    with opened(shop) as connection:
        found = connection.execute("SELECT * FROM customers WHERE email = lower(?)", [email.strip()]).fetchone()
        if found is None:
            raise LookupError(f"No customer with the email {email!r}.")
        orders = connection.execute(
            "SELECT id AS order_id, placed_on, status FROM orders WHERE customer_id = ? ORDER BY id DESC", [found["id"]]
        )
        return {"name": found["name"], "city": found["city"], "orders": [dict(order) for order in orders]}


def order(shop: Path, order_id: int) -> dict[str, Any]:
    """Return the lines, the payment and the status of an order.

    Raises:
        LookupError: there is no such order or no shop.
    """
    with opened(shop) as connection:
        found = connection.execute("SELECT * FROM orders WHERE id = ?", [order_id]).fetchone()
        if found is None:
            raise LookupError(f"No order {order_id}.")
        lines = connection.execute(
            "SELECT quantity, name, order_lines.price_cents FROM order_lines JOIN products ON id = product_id "
            "WHERE order_id = ?",
            [order_id],
        )
        paid, method = _paid(connection, order_id)
        return {
            "status": found["status"],
            "delivered_on": found["delivered_on"],
            "lines": [f"{line['quantity']} x {line['name']}, {euros(line['price_cents'])} each" for line in lines],
            "paid": euros(paid),
            "paid_by": method,
            "refunded": euros(found["refunded_cents"]),
        }


def book(shop: Path, refund: Refund, commit: Commit = sqlite3.Connection.commit) -> dict[str, Any]:
    """Book a refund, and return the facts that a customer may know.

    Before the booking, a line is written to a file beside the shop and synced. So the lines also count a booking that
    was never committed.

    Args:
        commit: commits the transaction. The demo passes a function that kills the process instead.

    Raises:
        LookupError, ValueError: the order does not exist, or the refund is more than was paid. Nothing was booked.
    """
    with opened(shop) as connection:
        if connection.execute("SELECT 1 FROM orders WHERE id = ?", [refund.order_id]).fetchone() is None:
            raise LookupError(f"No order {refund.order_id}.")
        paid, _ = _paid(connection, refund.order_id)
        if refund.cents > paid:
            raise ValueError(f"{euros(refund.cents)} is more than the {euros(paid)} paid for {refund.order_id}.")
        _set_out(shop, refund)
        values = (refund.key, refund.order_id, refund.cents, refund.reason, refund.at.isoformat(timespec="seconds"))
        connection.execute(
            "INSERT INTO refunds (key, order_id, amount_cents, reason, at) VALUES (?, ?, ?, ?, ?)", values
        )
        connection.execute(
            "UPDATE orders SET status = 'refunded', refunded_cents = refunded_cents + ? WHERE id = ?",
            [refund.cents, refund.order_id],
        )
        commit(connection)
    booked = booked_as(shop, refund.key)
    assert booked is not None
    return booked


def booked_as(shop: Path, key: str) -> dict[str, Any] | None:
    """Return the refund that a call booked, found by the call's key; `None` if it was not booked."""
    with opened(shop) as connection:
        row = connection.execute("SELECT * FROM refunds WHERE key = ? ORDER BY id", [key]).fetchone()
        if row is None:
            return None
        _, method = _paid(connection, row["order_id"])
        amount = euros(row["amount_cents"])
        return {"refund_id": row["id"], "order_id": row["order_id"], "amount": amount, "to": method}


def count(shop: Path) -> Count:
    """Return how often refunds of a session were started and booked."""
    lines = witness(shop).read_text(encoding="utf-8").splitlines() if witness(shop).exists() else []
    with opened(shop) as connection:
        return Count(len(lines), connection.execute("SELECT count(*) FROM refunds").fetchone()[0])


def _paid(connection: sqlite3.Connection, order_id: int) -> tuple[int, str]:
    """Return the amount paid for an order, in cents, and the method of payment."""
    payments = connection.execute("SELECT amount_cents, method FROM payments WHERE order_id = ?", [order_id]).fetchall()
    return sum(payment["amount_cents"] for payment in payments), payments[0]["method"] if payments else "nothing"


def _set_out(shop: Path, refund: Refund) -> None:
    with witness(shop).open("a", encoding="utf-8") as file:
        file.write(f"{refund.key}\t{refund.order_id}\t{euros(refund.cents)}\n")
        file.flush()
        os.fsync(file.fileno())
