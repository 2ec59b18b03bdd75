"""Settings of a chat agent and of a task, under the names that their users know.

    name, system_message      name and instructions of the frozen `Agent`
    llm                       its model, the address of one, or a config of Langroid's; `None`: it asks no model
    settings, policy          the same
    use_tools                 calls as JSON in the model's text: formatter `json-text`
    use_functions_api         native calls: formatter `tool-calls`; without `use_tools_api`, one call a message: `react`

What is set here is never changed by a task: two tasks of one agent do not know of each other.
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
    """Settings of an agent."""

    name: str = "LLM-Agent"
    llm: Model | LLMConfig | str | None = None
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    policy: Policy = Policy()
    respond_tools_only: bool = False
    """Whether it answers nothing but tool messages."""
    allow_multiple_tools: bool = True
    content_filter_message: str | None = "The model's provider withheld this answer: its content filter stopped it."
    """What is said in place of an empty reply that a filter stopped; `None` for no answer. The record has the reply."""
    human_prompt: str = "Your answer (q to end, Enter to pass): "


class ChatAgentConfig(AgentConfig, kw_only=True):
    """Settings of a chat agent."""

    system_message: str = "You are a helpful assistant."
    user_message: str | None = None
    """What begins its conversation when nobody says anything."""
    use_tools: bool = True
    use_functions_api: bool = False
    use_tools_api: bool = True
    enable_orchestration_tool_handling: bool = True
    handle_llm_no_tool: NoTool = None
    """What is said to a model that used no tool: a reminder; `user` or `done`; a tool message; a function of it."""
    recognize_recipient_in_content: bool = True
    strict_recovery: bool = True
    """Whether a model whose call did not fit its tool must make that call again, and nothing else."""
    output_format: Any = None
    """A type that the answer is to have; its JSON schema goes with each request."""

    @property
    def formatter(self) -> str:
        """The formatter of its histories."""
        if not self.use_functions_api:
            return "json-text"
        return "tool-calls" if self.use_tools_api else "react"


class TaskConfig(Struct, kw_only=True, metaclass=Defaults):
    """Settings of a task, or of one as the sub-task of another."""

    inf_loop_cycle_len: int = 10
    """Longest cycle of messages that is looked for; 0 to look for no cycle."""
    inf_loop_wait_factor: int = 5
    """How often a cycle must come round."""
    restart_as_subtask: bool = False
    """Whether its agent forgets what was said before when it is called again."""
    addressing_prefix: str = ""
    recognize_string_signals: bool = True
    done_if_tool: bool = False
    done_sequences: Sequence[str | DoneSequence] | None = None
    allow_subtask_multi_oai_tools: bool = True


Responder = Entity | Any
"""An entity of the task's own agent, or a sub-task."""
