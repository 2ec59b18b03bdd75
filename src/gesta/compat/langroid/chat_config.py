"""The settings of a chat agent and of a task, under Langroid's names.

    name, system_message      name and instructions of the frozen `Agent`
    llm                       its model, a model's address, or a config of Langroid's; `None`: it asks no model
    settings, policy          the same
    use_tools                 calls as JSON in the model's text: formatter `json-text`
    use_functions_api         native calls: formatter `tool-calls`; without `use_tools_api`, one call a message: `react`

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
    """The settings of an agent."""

    name: str = "LLM-Agent"
    llm: Model | LLMConfig | str | None = None
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    policy: Policy = Policy()
    respond_tools_only: bool = False
    """Whether the agent answers only messages with tools."""
    allow_multiple_tools: bool = True
    content_filter_message: str | None = "The model's provider withheld this answer: its content filter stopped it."
    """The answer in place of an empty reply that a filter stopped; `None` for no answer. The record has the reply."""
    human_prompt: str = "Your answer (q to end, Enter to pass): "


class ChatAgentConfig(AgentConfig, kw_only=True):
    """The settings of a chat agent."""

    system_message: str = "You are a helpful assistant."
    user_message: str | None = None
    """The first message of a conversation that starts without a message."""
    use_tools: bool = True
    use_functions_api: bool = False
    use_tools_api: bool = True
    enable_orchestration_tool_handling: bool = True
    handle_llm_no_tool: NoTool = None
    """The answer to a model's message without tools: a text, `user`, `done`, a tool message, or a function."""
    recognize_recipient_in_content: bool = True
    strict_recovery: bool = True
    """Whether a model must correct a call that did not fit its tool before it does anything else."""
    output_format: Any = None
    """The type of the model's answers; each request holds its JSON schema."""

    @property
    def formatter(self) -> str:
        """The name of the formatter for the agent's history."""
        if not self.use_functions_api:
            return "json-text"
        return "tool-calls" if self.use_tools_api else "react"


class TaskConfig(Struct, kw_only=True, metaclass=Defaults):
    """The settings of a task, also for the task as a sub-task."""

    inf_loop_cycle_len: int = 10
    """Length of the longest cycle of messages that counts as a loop; 0 to detect no loop."""
    inf_loop_wait_factor: int = 5
    """The number of times that a cycle must repeat to count as a loop."""
    restart_as_subtask: bool = False
    """Whether the history of the task's agent is hidden each time the task is called as a sub-task."""
    addressing_prefix: str = ""
    recognize_string_signals: bool = True
    done_if_tool: bool = False
    done_sequences: Sequence[str | DoneSequence] | None = None
    allow_subtask_multi_oai_tools: bool = True


Responder = Entity | Any
"""An entity of the task's own agent, or a sub-task."""
