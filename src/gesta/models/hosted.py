"""Makes models from their addresses: the dialect of a provider, and the sender of requests."""

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
    """Options of a model behind a URL. Unset options come from environment variables; `gesta models` lists these."""

    base_url: str | None
    """The address that replaces the provider's own."""
    key: Credential | None
    """The key, or a function that is called for a key at each request. A key is never on record."""
    token: Giving | None
    """A token, or a function that returns one. It is sent as `Authorization: Bearer`, whatever header the key has."""
    headers: Mapping[str, str] | None
    """More headers. If the name of a header marks a key, a token or a secret, its value is never shown."""
    bounds: Bounds | None
    """Longest time and largest size of a reply; by default the bounds of `GESTA_REPLY_BOUNDS`."""
    proxy: str | None
    """Address of the proxy; by default the proxy of the variables HTTPS_PROXY, ALL_PROXY and NO_PROXY."""
    settings: dict[str, Any] | None
    """Members of the body by the provider's own names, such as `temperature`; `None` leaves a member out."""
    stream: bool
    """Whether the reply is asked for as a stream; by default it is."""


def hosted(address: str, **options: Unpack[HostedOptions]) -> HttpModel:
    """Return a model behind a URL.

    Args:
        address: `provider:model`; with a base URL also the bare name of a model that uses Chat Completions.
        options: see `HostedOptions`.

    Raises:
        BadAddress: there is no such provider, or the base URL is missing or cannot be used.
        NoKey: the provider needs a key and its variable is not set.
        AgentError: both a key and a token are given, `GESTA_REPLY_BOUNDS` names an unknown bound, or the settings name
            a member that is made from the record.
        TypeError: there is no such option.
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
    """Raise TypeError for an option that a model does not have."""
    known = HostedOptions.__annotations__
    for name in options:
        if name not in known:
            raise TypeError(f"gesta.hosted has no option {name!r}.{nearest(name, known)} It has: {', '.join(known)}.")


def http_model(address: str, base_url: str | None = None, *, key: Credential | None = None) -> HttpModel:
    """Return a model behind a URL. This is the older form of `hosted`."""
    return hosted(address, base_url=base_url, key=key)


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


def unsent(address: str, *, stream: bool = True) -> HttpModel:
    """Return the model of an address, only to show its requests. No key is needed. Raises BadAddress."""
    provider, name = locate(address)
    return HttpModel(dialect(provider, name, stream=stream), provider)


def recorded(name: str, encoder: str, *, stream: bool = True) -> HttpModel:
    """Return the model for which a request on record was encoded, to show what was sent. No key is needed.

    Args:
        name: `provider:model`, as a request header holds it.
        encoder: name and version, as a block on record holds it.

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
