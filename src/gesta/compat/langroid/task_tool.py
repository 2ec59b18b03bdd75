"""A tool by which a model creates an agent for a part of its work; the new agent has a run of its own and one turn."""

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
    """A call by which the model describes an agent and the task of that agent."""

    _tool_effect: Effect | None = "idempotent"  # the run of its own goes on where it was
    _tool_timeout_s: float = math.inf
    request: str = "task_tool"
    purpose: str = (
        "To have an agent with <system_message> and some of your <tools> work on <prompt>, and get its answer."
    )
    system_message: str = ""
    """The system message of the agent; empty for a helpful assistant."""
    prompt: str
    tools: list[str] = field(default_factory=list)
    """Names of the caller's tools that the new agent gets: `ALL` for all; `NONE` or an empty list for no tools."""
    model: str = ""
    """Address of a model; empty for the model of the calling agent."""
    max_iterations: int | None = None
    """Greatest number of steps; 10 by default."""
    agent_name: str | None = None

    async def handle_async(self, agent: ChatAgent, context: Context) -> Any:
        """Run the agent, and return its answer."""
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
        """Return the requested tools of the calling agent, without `TaskTool` and `DoneTool`."""
        every = {name: cls for name, cls in agent.llm_tools_map.items() if name in agent.llm_tools_handled}
        names = {name for name in every if name in agent.llm_tools_usable} if ALL in self.tools else set(self.tools)
        allowed = [cls for name, cls in every.items() if name in names and name in agent.llm_tools_usable]
        return [cls for cls in allowed if not issubclass(cls, TaskTool | DoneTool)]
