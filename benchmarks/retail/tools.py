"""The retail tools as typed functions over a world, as an agent sees them."""

import functools
import json
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from benchmarks.retail.calculator import CHARACTERS, evaluate
from benchmarks.retail.corpus import Dialect
from benchmarks.retail.rules import CENTS, RetailError, Rules
from benchmarks.retail.world import World

P = ParamSpec("P")

READING_TOOLS = (
    "calculate",
    "find_user_id_by_email",
    "find_user_id_by_name_zip",
    "get_order_details",
    "get_product_details",
    "get_user_details",
    "list_all_product_types",
    "transfer_to_human_agents",
)
WRITING_TOOLS = (
    "cancel_pending_order",
    "exchange_delivered_order_items",
    "modify_pending_order_address",
    "modify_pending_order_items",
    "modify_pending_order_payment",
    "modify_user_address",
    "return_delivered_order_items",
)
"""The tools that change the database; the others only read it."""
TOOLS: dict[Dialect, tuple[str, ...]] = {
    "tau": (*READING_TOOLS, "think", *WRITING_TOOLS),
    "tau2": (*READING_TOOLS, "get_item_details", *WRITING_TOOLS),
}


def _tool(method: Callable[Concatenate["Retail", P], str]) -> Callable[Concatenate["Retail", P], str]:
    """Give a method its dialect's way to fail and, if it writes, one transaction with the idempotency key."""

    @functools.wraps(method)
    def run(self: "Retail", /, *args: P.args, **kwargs: P.kwargs) -> str:
        def attempt() -> str:
            try:
                return method(self, *args, **kwargs)
            except RetailError as error:
                if self.dialect == "tau":
                    return f"Error: {error}"
                raise

        if method.__name__ not in WRITING_TOOLS:
            return attempt()
        return self.world.apply(self.key() if self.key else None, attempt)

    return run


class Retail:
    """The tools of one world in one dialect; each method that `TOOLS` names is a tool, and returns text.

    In "tau" a refusal is an ordinary result `Error: <text>`; in "tau2" it raises `RetailError(<text>)`.

    Args:
        world: The database the tools work on.
        dialect: "tau" (tau-bench) or "tau2" (tau2-bench).
        key: Called once per writing call to get the idempotency key of that call; None to write without keys.
    """

    def __init__(self, world: World, dialect: Dialect, key: Callable[[], str] | None = None) -> None:
        self.world = world
        self.dialect: Dialect = dialect
        self.key = key
        self.rules = Rules(world, dialect)

    def functions(self) -> dict[str, Callable[..., str]]:
        """Return the dialect's tools by name."""
        return {name: getattr(self, name) for name in TOOLS[self.dialect]}

    def call(self, name: str, args: dict[str, Any], key: str | None = None) -> str:
        """Call a tool by name.

        Args:
            name: The tool's name.
            args: Its arguments by name.
            key: The idempotency key of a writing call, in place of the bound one; reading calls do not look at it.
        """
        function = self.functions().get(name)
        if function is None:
            if self.dialect == "tau":
                return f"Unknown action {name}"
            raise RetailError(f"Tool '{name}' not found.")
        if key is None or name not in WRITING_TOOLS:
            return function(**args)
        return self.world.apply(key, lambda: function(**args))

    @_tool
    def calculate(self, expression: str) -> str:
        """Work out an arithmetic expression, to two decimal digits.

        Args:
            expression: Numbers, + - * /, parentheses and spaces.
        """
        if not CHARACTERS.issuperset(expression):
            raise self.rules.error("invalid characters in expression")
        try:
            return str(round(evaluate(expression), CENTS))
        except ValueError as error:
            raise RetailError(str(error)) from error

    @_tool
    def find_user_id_by_email(self, email: str) -> str:
        """Look up a user's id by email address.

        Args:
            email: The address, in upper or lower case.
        """
        return self._user({"$.email": email})

    @_tool
    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:
        """Look up a user's id by name and zip code.

        Args:
            first_name: The first name, in upper or lower case.
            last_name: The last name, in upper or lower case.
            zip: The zip code, as in the user's address.
        """
        return self._user({"$.name.first_name": first_name, "$.name.last_name": last_name, "$.address.zip": zip})

    @_tool
    def get_order_details(self, order_id: str) -> str:
        """Return an order as JSON.

        Args:
            order_id: The order's id, with its leading '#'.
        """
        return json.dumps(self.rules.record("orders", order_id))

    @_tool
    def get_product_details(self, product_id: str) -> str:
        """Return a product with all its variants as JSON.

        Args:
            product_id: The product's id, which is not an item's.
        """
        return json.dumps(self.rules.record("products", product_id))

    @_tool
    def get_item_details(self, item_id: str) -> str:
        """Return one variant of a product as JSON.

        Args:
            item_id: The item's id, which is not a product's.
        """
        return json.dumps(self.rules.variant(item_id))

    @_tool
    def get_user_details(self, user_id: str) -> str:
        """Return a user with address, payment methods and order ids as JSON.

        Args:
            user_id: The user's id.
        """
        return json.dumps(self.rules.record("users", user_id))

    @_tool
    def list_all_product_types(self) -> str:
        """Return the product id of every product name as JSON, sorted by name."""
        products = self.world.records("products").values()
        return json.dumps(dict(sorted((product["name"], product["product_id"]) for product in products)))

    @_tool
    def think(self, thought: str) -> str:
        """Note a thought; nothing else happens.

        Args:
            thought: The thought.
        """
        return ""

    @_tool
    def transfer_to_human_agents(self, summary: str) -> str:
        """Hand the user over to a person; the conversation ends.

        Args:
            summary: What the user wants and what was done.
        """
        return "Transfer successful"

    @_tool
    def cancel_pending_order(self, order_id: str, reason: str) -> str:
        """Cancel a pending order, refund its payments and return it as JSON.

        Args:
            order_id: The order's id, with its leading '#'.
            reason: Either 'no longer needed' or 'ordered by mistake'.
        """
        return json.dumps(self.rules.cancel(order_id, reason))

    @_tool
    def exchange_delivered_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> str:
        """Request an exchange of items of a delivered order, once, and return the order as JSON.

        Args:
            order_id: The order's id, with its leading '#'.
            item_ids: The items to give back; an id may occur several times.
            new_item_ids: For each of them, in the same order, another variant of the same product.
            payment_method_id: The user's method to settle the difference in price with.
        """
        return json.dumps(self.rules.exchange_items(order_id, item_ids, new_item_ids, payment_method_id))

    @_tool
    def modify_pending_order_address(
        self, order_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
    ) -> str:
        """Change the shipping address of a pending order and return the order as JSON.

        Args:
            order_id: The order's id, with its leading '#'.
            address1: The first line of the address.
            address2: The second line of the address, may be empty.
            city: The city.
            state: The state's two letters.
            country: The country.
            zip: The zip code.
        """
        address = (address1, address2, city, state, country, zip)
        return json.dumps(self.rules.set_order_address(order_id, address))

    @_tool
    def modify_pending_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> str:
        """Change items of a pending order to other variants, once, and return the order as JSON.

        Args:
            order_id: The order's id, with its leading '#'.
            item_ids: The items to replace; an id may occur several times.
            new_item_ids: For each of them, in the same order, another variant of the same product.
            payment_method_id: The user's method to settle the difference in price with.
        """
        return json.dumps(self.rules.modify_items(order_id, item_ids, new_item_ids, payment_method_id))

    @_tool
    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> str:
        """Change the payment method of a pending order and return the order as JSON.

        Args:
            order_id: The order's id, with its leading '#'.
            payment_method_id: Another of the user's methods.
        """
        return json.dumps(self.rules.set_payment(order_id, payment_method_id))

    @_tool
    def modify_user_address(
        self, user_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
    ) -> str:
        """Change the default address of a user and return the user as JSON.

        Args:
            user_id: The user's id.
            address1: The first line of the address.
            address2: The second line of the address, may be empty.
            city: The city.
            state: The state's two letters.
            country: The country.
            zip: The zip code.
        """
        address = (address1, address2, city, state, country, zip)
        return json.dumps(self.rules.set_user_address(user_id, address))

    @_tool
    def return_delivered_order_items(self, order_id: str, item_ids: list[str], payment_method_id: str) -> str:
        """Request a return of items of a delivered order, once, and return the order as JSON.

        Args:
            order_id: The order's id, with its leading '#'.
            item_ids: The items to return; an id may occur several times.
            payment_method_id: The method of the order's first payment, or a gift card of the user.
        """
        return json.dumps(self.rules.return_items(order_id, item_ids, payment_method_id))

    def _user(self, values: dict[str, str]) -> str:
        """Return the id of the first user with these values (JSON path -> value)."""
        user_id = self.world.find("users", values)
        if user_id is None:
            raise self.rules.error("user not found")
        return user_id


def bind(world: World, dialect: Dialect, key: Callable[[], str] | None = None) -> dict[str, Callable[..., str]]:
    """Return a dialect's tools by name, bound to a world; see `Retail` for `key`."""
    return Retail(world, dialect, key).functions()
