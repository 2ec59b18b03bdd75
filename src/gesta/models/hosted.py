"""Makes models from addresses such as `openai:gpt-4o`.

A dialect, the format of one API, builds requests and reads replies. A record is the store of all runs of agents.
"""

import os
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack, get_args

from msgspec.structs import replace

from gesta.errors import AgentError, BadAddress, nearest
from gesta.models.anthropic_messages import AnthropicDialect
from gesta.models.bounds import VARIABLE, Bounds, bounds_of
from gesta.models.chat_completions import ChatDialect
from gesta.models.credential import Credential, Giving
from gesta.models.gemini import GeminiDialect
from gesta.models.http import Dialect, HttpModel
from gesta.models.providers import PROVIDERS, Provider, Speaks, locate
from gesta.models.responses import ResponsesDialect


class HostedOptions(TypedDict, total=False):
    """The options of `gesta.hosted`.

    An unset option comes from an environment variable; `gesta models` lists the variables.
    """

    base_url: str | None
    """The URL that replaces the provider's own base address."""
    key: Credential | None
    """The key, or a function that is called for a key at each request. A key is never put on record."""
    token: Giving | None
    """A token, or a function that returns one. It is sent as `Authorization: Bearer`, even if keys go into another
    header."""
    headers: Mapping[str, str] | None
    """More headers to send. If the name of a header suggests a key, a token or a secret, its value is never shown."""
    bounds: Bounds | None
    """The greatest time and size of a reply; by default the bounds that `GESTA_REPLY_BOUNDS` sets."""
    proxy: str | None
    """Address of the proxy; by default the proxy that HTTPS_PROXY, ALL_PROXY and NO_PROXY set."""
    settings: dict[str, Any] | None
    """Members of the request body by the provider's own names, such as `temperature`; `None` leaves a member out."""
    stream: bool
    """Whether replies are streamed, which is the default."""


def hosted(address: str, **options: Unpack[HostedOptions]) -> HttpModel:
    """Return a model behind an HTTP API. Nothing is sent yet.

    Args:
        address: `provider:model`; with a base URL also the bare name of a model that uses Chat Completions.
        options: see `HostedOptions`.

    Raises:
        BadAddress: the provider is unknown, or the base URL is missing or cannot be used.
        NoKey: the provider needs a key and its variable is not set.
        AgentError: both a key and a token are given, the key has characters that no header can hold,
            `GESTA_REPLY_BOUNDS` cannot be read, or a setting would replace a part of the body that Gesta writes itself.
        TypeError: an option is unknown.
    """
    refuse_misspelt(options)
    key, token, bounds = options.get("key"), options.get("token"), options.get("bounds")
    provider, name = locate(address, options.get("base_url"))
    if key is not None and token is not None:
        raise AgentError(f"The model {address!r} has a key and a token, expected one of them.")
    header = "authorization" if token is not None else provider.key_header
    provider = replace(provider, key_header=header, proxy=options.get("proxy"))
    bounds = bounds if bounds is not None else bounds_of(os.environ.get(VARIABLE, ""))
    made = dialect(provider, name, options.get("settings"), stream=options.get("stream", True))
    model = HttpModel(made, provider, key=key or token, headers=options.get("headers"), bounds=bounds)
    model.check()
    return model


def refuse_misspelt(options: Mapping[str, Any]) -> None:
    """Raise TypeError if an option is not one of `HostedOptions`. The message suggests the nearest name."""
    known = HostedOptions.__annotations__
    for name in options:
        if name not in known:
            raise TypeError(f"gesta.hosted has no option {name!r}.{nearest(name, known)} It has: {', '.join(known)}.")


def http_model(address: str, base_url: str | None = None, *, key: Credential | None = None) -> HttpModel:
    """Return a model behind an HTTP API. This is the older form of `hosted`."""
    return hosted(address, base_url=base_url, key=key)


def dialect(provider: Provider, model: str, settings: dict[str, Any] | None = None, *, stream: bool = True) -> Dialect:
    """Return the dialect (request format) of a provider's model.

    Args:
        settings: members of the request body. They replace the provider's settings of the same name.
    """
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


def unsent(address: str, *, stream: bool = True) -> HttpModel:
    """Return a model that only shows its requests and never sends them. No key is needed.

    Raises BadAddress if the address names no known provider or no model.
    """
    provider, name = locate(address)
    return HttpModel(dialect(provider, name, stream=stream), provider)


def recorded(name: str, encoder: str, *, stream: bool = True) -> HttpModel:
    """Return a model that builds recorded requests again, to show what was sent. No key is needed.

    Args:
        name: the model's name from the record, such as `openai:gpt-4o`.
        encoder: name and version of the encoding from the record, such as `chat-completions/1`.

    Raises:
        BadAddress: no request format has that encoder.
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
