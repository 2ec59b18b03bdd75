"""A tool with which a model creates an agent for a part of its work. The new agent has a run of its own."""

import math
from collections.abc import Sequence
from typing import Any

from msgspec import field

from gesta.compat.langroid.chat import ChatAgent
from gesta.compat.langroid.chat_config import ChatAgentConfig
from gesta.compat.langroid.chat_document import from_state
from gesta.compat.langroid.orchestration import DoneTool
from gesta.compat.langroid.task import Task
from gesta.compat.langroid.task_rules import Rules
from gesta.compat.langroid.tool_message import ToolMessage, to_json
from gesta.function_tool.context import Context
from gesta.function_tool.tool import Effect

ALL, NONE = "ALL", "NONE"


class TaskTool(ToolMessage):
    """A call in which the model describes a new agent and its task."""

    _tool_effect: Effect | None = "idempotent"  # called again, it continues the interrupted run
    _tool_timeout_s: float = math.inf
    _tool_key_s: float = math.inf
    request: str = "task_tool"
    purpose: str = (
        "To have an agent with <system_message> and some of your <tools> work on <prompt>, and get its answer."
    )
    system_message: str = ""
    """The system message of the agent; empty for a helpful assistant."""
    prompt: str
    tools: list[str] = field(default_factory=list)
    """Names of the caller's tools that the new agent gets: `ALL` for all; `NONE` or an empty list for none."""
    model: str = ""
    """Address of the model; empty for the calling agent's model."""
    max_iterations: int | None = None
    """Largest number of steps; `None` means 10."""
    agent_name: str | None = None

    async def handle_async(self, agent: ChatAgent, context: Context) -> Any:
        """Run the new agent, and return its answer, or a text that says why there is no answer."""
        config = ChatAgentConfig(
            name=self.agent_name or "task",
            llm=self.model or agent.config.llm,
            system_message=self.system_message or ChatAgentConfig().system_message,
            use_functions_api=agent.config.use_functions_api,
            policy=agent.config.policy,
        )
        made = ChatAgent(config)
        made.home = agent.home
        made.enable_message(DoneTool)
        for cls in self._granted(agent):
            made.enable_message(cls)
        task = Task(made, interactive=False)
        task.rules = Rules(turns=self.max_iterations or 10)
        ended = await context.call(task.as_agent(None), self.prompt)
        if ended.reason != "answered":
            return f"{task.name} ended with reason {ended.reason}, without an answer."
        doc = from_state(ended.value, task.all_tools())
        return doc.content or "\n".join(map(to_json, doc.tool_messages))

    def _granted(self, agent: ChatAgent) -> Sequence[type]:
        """Return the classes of the requested tools, without `TaskTool` and `DoneTool`.

        A tool is only granted if the calling agent handles it and its model may use it.
        """
        every = {name: cls for name, cls in agent.llm_tools_map.items() if name in agent.llm_tools_handled}
        names = {name for name in every if name in agent.llm_tools_usable} if ALL in self.tools else set(self.tools)
        allowed = [cls for name, cls in every.items() if name in names and name in agent.llm_tools_usable]
        return [cls for cls in allowed if not issubclass(cls, TaskTool | DoneTool)]
