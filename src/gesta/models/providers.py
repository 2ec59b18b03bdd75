"""Public hosts, with the dialect and the key variable of each.

Source: each provider's own page on its address, read 2026-11.
"""

from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from gesta.errors import BadAddress, nearest
from gesta.text.redactor import SECRETS

Speaks = Literal["chat-completions", "responses", "anthropic-messages", "gemini"]


class Provider(Struct, frozen=True):
    """A host, its dialect, and the settings and headers that it needs."""

    name: str
    url: str
    """Base address, to which the dialect adds its path; its query is kept."""
    key_variable: str | None = None
    """Environment variable that holds the key."""
    key_needed: bool = True
    settings: dict[str, Any] = {}
    """Settings that every model of it needs; None leaves a member out."""
    speaks: Speaks = "chat-completions"
    key_header: str = "authorization"
    """The header that the key is sent in; in that one after the word Bearer."""
    headers: dict[str, str] = {}
    """What else it wants to be told."""
    keeps: tuple[str, ...] = ()
    """Members of a Chat Completions reply that it wants back with the calls that came with them."""

    def __post_init__(self) -> None:
        """Refuse an address that nothing can be sent to, and one that holds a password."""
        try:
            url = urlsplit(self.url)
            usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise BadAddress(
                f"{SECRETS.address(self.url)!r} is no base URL. Write one as https://api.example.com/v1 or http://localhost:8000/v1."
            )
        if "@" in url.netloc:
            raise BadAddress(
                f"The base URL of {url.hostname!r} holds a user or password, which would end up in logs. "
                "Pass the key by itself."
            )


LOCAL = "GESTA_API_KEY"
"""Sent, if it is set, to a base URL that was given without a provider."""

PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
        Provider("openai-responses", "https://api.openai.com/v1", "OPENAI_API_KEY", speaks="responses"),
        Provider(
            "anthropic",
            "https://api.anthropic.com",
            "ANTHROPIC_API_KEY",
            speaks="anthropic-messages",
            key_header="x-api-key",
            headers={"anthropic-version": "2023-06-01"},
        ),
        Provider(
            "google",
            "https://generativelanguage.googleapis.com/v1beta",
            "GEMINI_API_KEY",
            speaks="gemini",
            key_header="x-goog-api-key",
        ),
        Provider("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", keeps=("reasoning_details",)),
        Provider("deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY", keeps=("reasoning_content",)),
        Provider("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        # Refuses `stream_options` with 422, and counts tokens in a stream without being asked.
        Provider("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", settings={"stream_options": None}),
        Provider("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        Provider("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        Provider("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
        Provider("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", keeps=("reasoning_content",)),
        Provider(
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            "GEMINI_API_KEY",
            keeps=("extra_content",),
        ),
        Provider("ollama", "http://localhost:11434/v1"),
        Provider("vllm", "http://localhost:8000/v1", "VLLM_API_KEY", key_needed=False),
        Provider("lmstudio", "http://localhost:1234/v1"),
    )
}
"""By name, the first half of a model's address."""


def locate(address: str, base_url: str | None = None) -> tuple[Provider, str]:
    """Find the provider of an address and its own name for the model.

    Args:
        address: `provider:model`; with a base URL also a bare name of a model, which may hold colons.
        base_url: where to send instead. The key of a provider goes there only when the address names that provider.

    Raises:
        BadAddress: no such provider, no model, or no base URL that one could use.
    """
    name, _, model = address.partition(":")
    provider = PROVIDERS.get(name)
    if provider is None and base_url is not None and address:
        provider = Provider("", base_url, LOCAL, key_needed=False)
        return replace(provider, name=urlsplit(base_url).hostname), address
    if provider is None:
        known = ", ".join(PROVIDERS)
        raise BadAddress(
            f"{address!r} names no provider: write provider:model, as in 'openai:gpt-4o' or 'ollama:llama3.1', "
            f"or give a base URL.{nearest(name, PROVIDERS)} Known: {known}."
        )
    if not model:
        raise BadAddress(f"{address!r} names no model: write {name}:MODEL, by the provider's own name for it.")
    if base_url is not None:
        provider = replace(provider, url=base_url)
    return provider, model
