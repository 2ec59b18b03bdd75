"""Langroid's model for tests (`langroid.language_models.mock_lm`), whose answer depends on the last message only."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import field

from gesta.compat.langroid.language_models.base import LLMConfig
from gesta.kinds import RequestHeaderContent
from gesta.model.request import Model
from gesta.models.function import function
from gesta.perform.call_contents import plain
from gesta.prompt import observation_text

OBSERVED = "Observation: "
"""The words before a tool result in a history whose calls are written as text. A mock model does not see them."""

__all__ = ["MockLMConfig"]


class Free:
    """A price list by which every model costs nothing."""

    dated = "free"

    def usd(self, usage: dict[str, Any]) -> float:
        """Return 0.0, the cost in US dollars."""
        del usage
        return 0.0


class MockLMConfig(LLMConfig, kw_only=True):
    """A mock model: it looks its answer up in a dict, else asks a function, else answers with a fixed text."""

    response_dict: dict[str, Any] = field(default_factory=dict)
    """Answers by the exact text of the last message."""
    response_fn: Callable[[str], Any] | None = None
    response_fn_async: Callable[[str], Awaitable[Any]] | None = None
    """An async function in place of `response_fn`. If both are set, only this one is called."""
    default_response: str = "Mock response"

    def model(self) -> Model:
        """Return a model that calls no provider."""
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
