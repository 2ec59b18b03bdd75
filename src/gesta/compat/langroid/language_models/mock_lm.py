"""A model for tests, under the names of `langroid.language_models.mock_lm`: a function of the last message."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import field

from gesta.compat.langroid.language_models.base import LLMConfig
from gesta.kinds import RequestHeaderContent
from gesta.model.request import Model
from gesta.models.function import function
from gesta.perform.result import plain
from gesta.prompt.formatter import observation_text

OBSERVED = "Observation: "
"""The words before each tool result where calls are written as text; a mock model reads the result without them."""

__all__ = ["MockLMConfig"]


class Free:
    """The price of mock models."""

    dated = "free"

    def usd(self, usage: dict[str, Any]) -> float:
        """Return 0."""
        del usage
        return 0.0


class MockLMConfig(LLMConfig, kw_only=True):
    """A model that answers from a dict, or else by a function, or else with a fixed text."""

    response_dict: dict[str, Any] = field(default_factory=dict)
    """Answers by the whole text of the last message."""
    response_fn: Callable[[str], Any] | None = None
    response_fn_async: Callable[[str], Awaitable[Any]] | None = None
    """The same as `response_fn`, as an async function; it has precedence over `response_fn`."""
    default_response: str = "Mock response"

    def model(self) -> Model:
        """Return the model."""
        return function(self._answer, "mock")

    def price(self) -> Free:
        """Return a price of 0 for all tokens."""
        return Free()

    async def _answer(self, messages: list[dict[str, Any]], _header: RequestHeaderContent) -> str:
        text = str(messages[-1]["content"] or "").removeprefix(OBSERVED) if messages else ""
        if text in self.response_dict:
            return observation_text(plain(self.response_dict[text]))
        if self.response_fn_async is not None:
            given = await self.response_fn_async(text)
        else:
            given = self.response_fn(text) if self.response_fn is not None else None
        return observation_text(plain(given or self.default_response))
