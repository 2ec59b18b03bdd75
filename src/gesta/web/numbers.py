"""Numbers in the addresses of the pages: in a path, as `{seq:number}`, and in a query.

More than 15 digits are not accepted as a number, because stores cannot hold it in a column.
"""

import re

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request

NUMBER = re.compile(r"\d{1,15}", re.ASCII)


class Number(Convertor[int]):
    """The form of numbers in the paths of addresses: 1 to 15 digits."""

    regex = "[0-9]{1,15}"

    def convert(self, value: str) -> int:
        """Return the number that digits in a path state."""
        return int(value)

    def to_string(self, value: int) -> str:
        """Return a number as digits for a path."""
        return str(value)


def number(request: Request, name: str, otherwise: int) -> int:
    """Return a number from the query of an address; `otherwise` if it is missing or not a number."""
    return number_in(request.query_params.get(name, ""), otherwise)


def number_in(text: str, otherwise: int) -> int:
    """Return the number that a text states; `otherwise` if the text is not a number."""
    return int(text) if NUMBER.fullmatch(text) else otherwise


register_url_convertor("number", Number())
