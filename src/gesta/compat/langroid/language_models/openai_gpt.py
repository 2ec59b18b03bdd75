"""The names of Langroid's module `langroid.language_models.openai_gpt`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.language_models.base import LLMConfig

__all__ = ["OpenAIGPTConfig"]


class OpenAIGPTConfig(LLMConfig, kw_only=True):
    """The description of an OpenAI model, or of a model whose address names another provider."""

    chat_model: str = "gpt-5-mini"

    def model(self) -> str:
        """Return the address of the model; a name without a provider is a model of OpenAI."""
        address = str(super().model())
        return address if ":" in address else f"openai:{address}"
