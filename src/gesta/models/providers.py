"""Public providers of models, with the address, the request format and the key variable of each.

Source: each provider's page on its address, and the variables that its own library reads, read 2026-11.
"""

import os
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from gesta.errors import BadAddress, nearest
from gesta.text.redactor import SECRETS

Speaks = Literal["chat-completions", "responses", "anthropic-messages", "gemini"]
DIALECTS: dict[Speaks, str] = {
    "chat-completions": "Chat Completions",
    "responses": "Responses",
    "anthropic-messages": "Messages (Anthropic)",
    "gemini": "Gemini",
}
"""The request formats, each with its name for people, in the order in which the viewer lists them."""


class Provider(Struct, frozen=True):
    """A provider of models: its address and request format, and the settings and headers that it needs."""

    name: str
    url: str
    """The base address. The request format adds its own path. A query in the address is kept."""
    key_variable: str | None = None
    """The environment variable that holds the key."""
    key_also: tuple[str, ...] = ()
    """More environment variables for the key, which other programs use. The first variable that is set is used."""
    key_needed: bool = True
    url_variable: str | None = None
    """The environment variable that replaces the base address. The provider's own library reads the same variable."""
    url_path: str = ""
    """The end of the base address. It is added to an address that a variable or the user gives without it."""
    header_variables: dict[str, str] = {}
    """Names of HTTP headers, each with the environment variable that holds its value. A header without a value is not
    sent."""
    settings: dict[str, Any] = {}
    """Members of the request body that every model of the provider needs; `None` leaves a member out."""
    speaks: Speaks = "chat-completions"
    key_header: str = "authorization"
    """The header that holds the key; in `authorization`, the word Bearer comes before it."""
    headers: dict[str, str] = {}
    """More headers that the provider needs."""
    proxy: str | None = None
    """Address of the proxy; by default the proxy of the variables HTTPS_PROXY, ALL_PROXY and NO_PROXY."""
    keeps: tuple[str, ...] = ()
    """Members of a Chat Completions reply, such as reasoning, which later requests must send back with its tool
    calls."""

    def key(self) -> tuple[str | None, str]:
        """Return the environment variable that holds the key, and the key.

        If no variable is set, return the first variable and `""`.
        """
        for variable in (self.key_variable, *self.key_also):
            if variable is not None and (found := os.environ.get(variable, "").strip()):
                return variable, found
        return self.key_variable, ""

    def in_force(self) -> "Provider":
        """Return a copy whose base address comes from the environment variable that `url_variable` names.

        If that variable is not set, return the provider itself. Raises BadAddress if its value is not an HTTP address.
        """
        found = os.environ.get(self.url_variable, "").strip() if self.url_variable is not None else ""
        if not found:
            return self
        url = found if "://" in found else f"http://{found}"
        url = url.rstrip("/")
        try:
            return replace(self, url=url if url.endswith(self.url_path) else url + self.url_path)
        except BadAddress as wrong:
            raise BadAddress(f"{self.url_variable}: {wrong}") from wrong

    def __post_init__(self) -> None:
        """Raise BadAddress if the address is not an http or https URL, or if it contains a user or a password."""
        try:
            url = urlsplit(self.url)
            usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise BadAddress(
                f"{SECRETS.address(self.url)!r} is not a base URL. Write one as https://api.example.com/v1 or http://localhost:8000/v1."
            )
        if "@" in url.netloc:
            raise BadAddress(
                f"The base URL of {url.hostname!r} holds a user or password, which would end up in logs. "
                "Pass the key by itself."
            )


LOCAL = "GESTA_API_KEY"
"""The environment variable for the key if a base URL is given without a provider. It may be unset."""

OPENAI = Provider(
    "openai",
    "https://api.openai.com/v1",
    "OPENAI_API_KEY",
    url_variable="OPENAI_BASE_URL",
    header_variables={"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"},
)
AZURE = Provider(
    "azure",
    "https://RESOURCE.openai.azure.com/openai/v1",
    "AZURE_OPENAI_API_KEY",
    key_header="api-key",
    url_variable="AZURE_OPENAI_ENDPOINT",
    url_path="/openai/v1",
)
"""On Azure, each customer has an address, and a deployment names the model. Source: Microsoft's page on the
v1 API of Azure OpenAI, which needs no `api-version`."""

PROVIDERS = {
    provider.name: provider
    for provider in (
        OPENAI,
        replace(OPENAI, name="openai-responses", speaks="responses"),
        AZURE,
        replace(AZURE, name="azure-responses", speaks="responses"),
        Provider(
            "anthropic",
            "https://api.anthropic.com",
            "ANTHROPIC_API_KEY",
            speaks="anthropic-messages",
            key_header="x-api-key",
            url_variable="ANTHROPIC_BASE_URL",
            headers={"anthropic-version": "2023-06-01"},
        ),
        Provider(
            "google",
            "https://generativelanguage.googleapis.com/v1beta",
            "GEMINI_API_KEY",
            speaks="gemini",
            key_header="x-goog-api-key",
            key_also=("GOOGLE_API_KEY",),
            url_variable="GOOGLE_GEMINI_BASE_URL",
            url_path="/v1beta",
        ),
        Provider("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", keeps=("reasoning_details",)),
        Provider("deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY", keeps=("reasoning_content",)),
        Provider(
            "groq",
            "https://api.groq.com/openai/v1",
            "GROQ_API_KEY",
            url_variable="GROQ_BASE_URL",
            url_path="/openai/v1",
        ),
        # Refuses `stream_options` with 422, and counts tokens in a stream without being asked.
        Provider("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", settings={"stream_options": None}),
        Provider("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", url_variable="TOGETHER_BASE_URL"),
        Provider("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        Provider("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
        Provider("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", keeps=("reasoning_content",)),
        Provider(
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            "GEMINI_API_KEY",
            key_also=("GOOGLE_API_KEY",),
            keeps=("extra_content",),
        ),
        Provider("ollama", "http://localhost:11434/v1", url_variable="OLLAMA_HOST", url_path="/v1"),
        Provider("vllm", "http://localhost:8000/v1", "VLLM_API_KEY", key_needed=False),
        Provider("lmstudio", "http://localhost:1234/v1"),
    )
}
"""The providers by name. The name is the part of a model's address before the first colon."""

MAKERS = {
    "gpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude-": "anthropic",
    "gemini-": "google",
    "mistral-": "mistral",
    "grok-": "xai",
    "kimi-": "moonshot",
}
"""Beginnings of model names, each with its provider. An error suggests the provider if an address lacks one."""


def locate(address: str, base_url: str | None = None) -> tuple[Provider, str]:
    """Return the provider of a model's address, and the provider's name for the model.

    Args:
        address: `provider:model`; with a base URL also the bare name of a model, which may contain colons.
        base_url: the URL that replaces the provider's own. The provider's key is sent there only if `address` names
            that provider.

    Raises:
        BadAddress: the provider is unknown, the model is missing, or the base URL is missing or is not an HTTP address.
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
            f"or give a base URL.{_meant(address)} Known: {known}."
        )
    if not model:
        raise BadAddress(f"{address!r} names no model: write {name}:MODEL, by the provider's own name for it.")
    if base_url is None:
        provider = provider.in_force()
    else:
        bare = provider.url_path and not urlsplit(base_url).path.strip("/")
        provider = replace(provider, url=base_url.rstrip("/") + provider.url_path if bare else base_url)
    if provider.url == AZURE.url:
        raise BadAddress(f"{address!r} needs an address of your own: set {AZURE.url_variable}, or give a base URL.")
    return provider, model


def _meant(address: str) -> str:
    """Return the sentence "Did you mean …?" for an address without a known provider; `""` if no name is near."""
    name, slash, model = address.partition("/")
    if slash and name in PROVIDERS and model:
        return f" Did you mean {f'{name}:{model}'!r}?"
    if ":" not in address:
        for beginning, provider in MAKERS.items():
            if address.startswith(beginning):
                return f" Did you mean {f'{provider}:{address}'!r}?"
    return nearest(address.partition(":")[0], PROVIDERS)
