"""Names of `langroid.language_models.base`: a message and a reply are Gesta's own, and a config leads to a model."""

import copy
from functools import partial
from typing import Any

from msgspec import Struct, field

from gesta.compat.langroid.chat_document import LLMFunctionCall, OpenAIToolCall
from gesta.compat.langroid.entities import Role, StreamEventType
from gesta.compat.langroid.tool_message import LLMFunctionSpec
from gesta.message import Message as LLMMessage
from gesta.model.request import Model
from gesta.model.request import Reply as LLMResponse
from gesta.policy import Spelled

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
    """A metaclass that allows a default which can be changed, as pydantic does: each instance gets a copy of it."""

    def __new__(mcls, name: str, bases: Any, namespace: Any, **options: Any) -> Any:  # noqa: D102
        for key in namespace.get("__annotations__", {}):
            if isinstance(namespace.get(key), Struct | list | dict | set):
                namespace[key] = field(default_factory=partial(copy.copy, namespace[key]))
        return super().__new__(mcls, name, bases, namespace, **options)


class LLMConfig(Struct, kw_only=True, metaclass=Defaults):
    """Which model, and how it is asked."""

    chat_model: str = ""
    """Name of the model, or its address `provider:model`; `provider/model` is read as that."""
    temperature: float | None = None
    """As the provider understands it; `None` for the provider's default."""
    max_output_tokens: int | None = None
    """Longest answer in tokens; `None` for the provider's default."""

    def model(self) -> Model | str:
        """Return the model, or its address."""
        host, slash, name = self.chat_model.partition("/")
        return f"{host}:{name}" if slash else self.chat_model

    def settings(self) -> dict[str, Any]:
        """Return the settings of its requests."""
        given = {"temperature": self.temperature, "max_completion_tokens": self.max_output_tokens}
        return {name: value for name, value in given.items() if value is not None}
