"""The settings of a chat agent and of a task, under Langroid's names.

    name, system_message      name and instructions of Gesta's `Agent`
    llm                       its model: a model, an address, or a config of Langroid's; `None` for no model
    settings, policy          the same as in Gesta
    use_tools                 the model writes calls as JSON in its text: formatter `json-text`
    use_functions_api         calls through the provider's interface: formatter `tool-calls`
    use_tools_api             with `use_functions_api`: false allows only one call a message: formatter `react`

A task never changes these settings, so two tasks of one agent do not affect each other.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gesta.compat.langroid.chat_document import ChatDocument, Entity
from gesta.compat.langroid.done_sequences import DoneSequence
from gesta.compat.langroid.language_models.base import Defaults, LLMConfig
from gesta.compat.langroid.tool_message import ToolForm
from gesta.model.request import Model
from gesta.policy import Policy

NoTool = str | ToolForm | Callable[[ChatDocument], Any] | None


class AgentConfig(Struct, kw_only=True, metaclass=Defaults):
    """The settings that `ChatAgentConfig` inherits: the model, the policy, and how the agent treats messages."""

    name: str = "LLM-Agent"
    llm: Model | LLMConfig | str | None = None
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    policy: Policy = Policy()
    respond_tools_only: bool = False
    """Whether the agent ignores messages without tools."""
    allow_multiple_tools: bool = True
    content_filter_message: str | None = "The model's provider withheld this answer: its content filter stopped it."
    """The answer used if the provider's content filter left the reply empty; `None` for no answer."""
    human_prompt: str = "Your answer (q to end, Enter to pass): "


class ChatAgentConfig(AgentConfig, kw_only=True):
    """The settings of a chat agent."""

    system_message: str = "You are a helpful assistant."
    user_message: str | None = None
    """The first message to the model in a conversation that a program starts without a message."""
    use_tools: bool = True
    use_functions_api: bool = False
    use_tools_api: bool = True
    enable_orchestration_tool_handling: bool = True
    handle_llm_no_tool: NoTool = None
    """What the agent answers to a message of its model without tools.

    A text, a tool message, a function of the message, `user` (ask the person) or `done` (end the task).
    """
    recognize_recipient_in_content: bool = True
    strict_recovery: bool = True
    """Whether a model whose call was invalid must call that tool again before it does anything else."""
    output_format: Any = None
    """The type of the model's answers; `None` for text. Each request contains the JSON schema of the type."""

    @property
    def formatter(self) -> str:
        """Name of the formatter that turns the agent's history into messages for the model."""
        if not self.use_functions_api:
            return "json-text"
        return "tool-calls" if self.use_tools_api else "react"


class TaskConfig(Struct, kw_only=True, metaclass=Defaults):
    """The settings of a task. `add_sub_task` can set others for a sub-task."""

    inf_loop_cycle_len: int = 10
    """A task ends if its messages repeat in a cycle of at most this many messages; 0 turns the check off."""
    inf_loop_wait_factor: int = 5
    """How many times a cycle of messages must repeat before it ends the task."""
    restart_as_subtask: bool = False
    """Whether the agent's history is hidden each time the task is called as a sub-task."""
    addressing_prefix: str = ""
    recognize_string_signals: bool = True
    done_if_tool: bool = False
    done_sequences: Sequence[str | DoneSequence] | None = None
    allow_subtask_multi_oai_tools: bool = True


Responder = Entity | Any
"""The agent, its model or the user (an `Entity`), or a sub-task."""
