"""The names of Langroid's package `langroid.language_models`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.language_models import base, mock_lm, openai_gpt
from gesta.compat.langroid.language_models.base import (
    LLMConfig,
    LLMFunctionCall,
    LLMFunctionSpec,
    LLMMessage,
    LLMResponse,
    OpenAIToolCall,
    Role,
    StreamEventType,
)
from gesta.compat.langroid.language_models.mock_lm import MockLMConfig
from gesta.compat.langroid.language_models.openai_gpt import OpenAIGPTConfig

ORDER = ("base", "mock_lm", "openai_gpt")
"""The modules in reading order: each imports only modules before it."""

__all__ = [
    "LLMConfig",
    "LLMFunctionCall",
    "LLMFunctionSpec",
    "LLMMessage",
    "LLMResponse",
    "MockLMConfig",
    "OpenAIGPTConfig",
    "OpenAIToolCall",
    "Role",
    "StreamEventType",
    "base",
    "mock_lm",
    "openai_gpt",
]
