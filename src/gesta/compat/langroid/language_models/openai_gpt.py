"""Names of `langroid.language_models.openai_gpt`."""

from gesta.compat.langroid.language_models.base import LLMConfig

__all__ = ["OpenAIGPTConfig"]


class OpenAIGPTConfig(LLMConfig, kw_only=True):
    """A model of OpenAI's, or of the provider in an address `provider:model`."""

    chat_model: str = "gpt-5-mini"

    def model(self) -> str:
        """Return the address of the model."""
        address = str(super().model())
        return address if ":" in address else f"openai:{address}"
