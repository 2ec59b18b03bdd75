"""Prices of tokens from the list in the package genai-prices.

The package is imported when a price is first needed, because its list is large and takes half a second to load. A model
that the list does not know has no price. That does not mean that it is free. Each price names the release of the list.
Prices are estimates: only the provider's bill is exact.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gesta.errors import MissingExtra
from gesta.model.usage import tokens
from gesta.models.providers import PROVIDERS

FLAVOURS = ("chat", "default")
"""The formats of usage to try, by their names in genai-prices: that of Chat Completions, and the provider's own."""


UNKNOWN = (LookupError, ValueError, TypeError)
"""The errors that genai-prices raises for an unknown model, provider or form of usage."""


class Listed:
    """The price of one model in the list of genai-prices."""

    library = "genai-prices"

    def __init__(self, provider: str, model: str) -> None:
        self._provider, self._model = provider, model

    @cached_property
    def dated(self) -> str:
        """Name and release of the list, such as `genai-prices 0.2.3`. It is `""` if the package is not installed."""
        try:
            return f"{self.library} {version(self.library)}"
        except PackageNotFoundError:
            return ""

    def check(self) -> None:
        """Raise MissingExtra if the package genai-prices is not installed."""
        if not self.dated:
            raise MissingExtra("A budget in US dollars", self.library, "prices")

    def usd(self, usage: dict[str, Any]) -> float | None:
        """Return the price in US dollars of the tokens that one request used.

        Return `None` if the list does not know the model or cannot read the usage.

        Args:
            usage: numbers of tokens, as the provider sent them.
        """
        if not self.dated:
            return None
        from genai_prices import calc_price

        for counted in self._counted(usage):
            with suppress(*UNKNOWN):
                return float(calc_price(counted, self._model, provider_id=self._provider).total_price)
        return None

    def _counted(self, usage: dict[str, Any]) -> Iterator[Any]:
        """Yield the usage as `Usage` objects of genai-prices: one for each format in which it can be read.

        The last object holds only the numbers of input and output tokens.
        """
        from genai_prices import Usage, extract_usage

        for flavour in FLAVOURS:
            read = None
            with suppress(*UNKNOWN):
                data = {"model": self._model, "usage": usage}
                read = extract_usage(data, provider_id=self._provider, api_flavor=flavour).usage
            if read is not None:
                yield read
        counts = tokens(usage)
        if counts is not None:
            yield Usage(input_tokens=counts.input, output_tokens=counts.output)


def listed(name: str, *, needed: bool = False) -> Listed | None:
    """Return the price of a model named `provider:model`; `None` if Gesta does not know the provider.

    Args:
        needed: whether a budget in US dollars depends on the price.

    Raises:
        MissingExtra: the price is needed, and the package genai-prices is not installed.
    """
    provider, _, model = name.partition(":")
    if provider not in PROVIDERS or not model:
        return None
    found = Listed(provider, model)
    if needed:
        found.check()
    return found
