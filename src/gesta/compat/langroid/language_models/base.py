"""The names of Langroid's module `langroid.language_models.base`.

Messages and replies are Gesta's own classes. A config describes a model, and `LLMConfig.model` makes it.
"""

from typing import Any

from msgspec import Struct

from gesta.compat.langroid.entities import LLMFunctionCall, LLMMessage, OpenAIToolCall, Role, StreamEventType
from gesta.compat.langroid.facts import settle_defaults
from gesta.compat.langroid.tool_message import LLMFunctionSpec
from gesta.model.request import Model
from gesta.model.request import Reply as LLMResponse
from gesta.policy import Price, Spelled

__all__ = [
    "Defaults",
    "LLMConfig",
    "LLMFunctionCall",
    "LLMFunctionSpec",
    "LLMMessage",
    "LLMResponse",
    "OpenAIToolCall",
    "Role",
    "StreamEventType",
]


class Defaults(Spelled):
    """A metaclass that accepts mutable defaults, as pydantic does: each instance gets its own copy of a default."""

    def __new__(mcls, name: str, bases: Any, namespace: Any, *, kw_only: bool = True) -> Any:  # noqa: D102
        settle_defaults(namespace)
        return super().__new__(mcls, name, bases, namespace, kw_only=kw_only)


class LLMConfig(Struct, kw_only=True, metaclass=Defaults):
    """The description of a model, with the settings of its requests."""

    chat_model: str = ""
    """Name of the model, or its address `provider:model` or `provider/model`."""
    temperature: float | None = None
    """The temperature as the provider defines it; `None` for the provider's default."""
    max_output_tokens: int | None = None
    """Longest answer in tokens; `None` for the provider's default."""

    def model(self) -> Model | str:
        """Return the model, or its address `provider:model`."""
        host, slash, name = self.chat_model.partition("/")
        return f"{host}:{name}" if slash else self.chat_model

    def price(self) -> Price | None:
        """Return the price of the model's tokens; `None` to look it up in Gesta's list of prices."""
        return None

    def settings(self) -> dict[str, Any]:
        """Return the settings to send with each request of the model."""
        given = {"temperature": self.temperature, "max_completion_tokens": self.max_output_tokens}
        return {name: value for name, value in given.items() if value is not None}
