"""Models by address: the dialect that a host speaks, and the sender that reaches it."""

import os
from collections.abc import Mapping
from typing import Any, get_args

from gesta.errors import BadAddress
from gesta.models.anthropic_messages import AnthropicDialect
from gesta.models.bounds import VARIABLE, bounds_of
from gesta.models.chat_completions import ChatDialect
from gesta.models.gemini import GeminiDialect
from gesta.models.http import Dialect, HttpModel
from gesta.models.providers import PROVIDERS, Provider, Speaks, locate
from gesta.models.responses import ResponsesDialect


def http_model(
    address: str,
    base_url: str | None = None,
    *,
    settings: dict[str, Any] | None = None,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    stream: bool = True,
) -> HttpModel:
    """Make a model from `provider:model`, or from any model's name at a base URL, which speaks Chat Completions.

    Raises:
        BadAddress: no such provider, or no base URL that one could use.
        NoKey: the provider needs a key and its variable is not set.
        AgentError: `GESTA_REPLY_BOUNDS` names an unknown bound, or the settings name a member that the record decides.
    """
    provider, name = locate(address, base_url)
    bounds = bounds_of(os.environ.get(VARIABLE, ""))
    made = dialect(provider, name, settings, stream=stream)
    model = HttpModel(made, provider, key=key, headers=headers, bounds=bounds)
    model.check()
    return model


def dialect(provider: Provider, model: str, settings: dict[str, Any] | None = None, *, stream: bool = True) -> Dialect:
    """Return the dialect of a model, with its settings."""
    own = provider.settings | (settings or {})
    match provider.speaks:
        case "anthropic-messages":
            return AnthropicDialect(model, own, stream)
        case "responses":
            return ResponsesDialect(model, own, stream)
        case "gemini":
            return GeminiDialect(model, own, stream)
        case "chat-completions":
            return ChatDialect(model, own, stream, provider.keeps)


def hosted(address: str, *, stream: bool = True) -> HttpModel:
    """Return the model of an address to show requests, not to send them. It needs no key. Raises BadAddress."""
    provider, name = locate(address)
    return HttpModel(dialect(provider, name, stream=stream), provider)


def recorded(name: str, encoder: str, *, stream: bool = True) -> HttpModel:
    """Return the model that a request on record was encoded for, to show what was sent. It needs no key.

    Args:
        name: `provider:model`, as a header has it.
        encoder: as a block has it, without its formatter.

    Raises:
        BadAddress: no dialect has that encoder.
    """
    host, _, model = name.partition(":")
    speaks = next((known for known in get_args(Speaks) if known == encoder.partition("/")[0]), None)
    if speaks is None:
        raise BadAddress(
            f"Nothing here encodes messages as {encoder!r}, as the request's blocks on record say. "
            "Name a model to show it for: --model PROVIDER:MODEL"
        )
    provider = PROVIDERS.get(host)
    if provider is None or provider.speaks != speaks:
        provider = Provider(host or "unknown", "http://localhost/v1", speaks=speaks)
    return HttpModel(dialect(provider, model or name, stream=stream), provider)
