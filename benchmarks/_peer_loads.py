"""Measures a step in other systems: N calls of one small tool by a scripted model, then an answer, without a network.

`benchmarks._peers` runs this file with the Python of an environment that has those systems: `python _peer_loads.py NAME
N`. It prints one JSON object: microseconds of CPU time per step, and kB on disk per step if the system stores anything.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ANSWER = "The parcel left the warehouse this morning and is due tomorrow before noon. " * 4


def found(number: int) -> str:
    """Where a parcel is."""
    return f"Parcel {number}: {ANSWER}"


def langgraph(steps: int, folder: Path, *, keeps: bool) -> float:
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    @tool
    def parcel(number: int) -> str:
        """Where a parcel is."""
        return found(number)

    asked = iter(range(steps))

    def model(_state: MessagesState) -> dict[str, Any]:
        number = next(asked, None)
        if number is None:
            return {"messages": [AIMessage(content=ANSWER)]}
        call = {"name": "parcel", "args": {"number": number}, "id": f"c{number}"}
        return {"messages": [AIMessage(content="Let me look.", tool_calls=[call])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([parcel]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    config: Any = {"recursion_limit": 2 * steps + 10, "configurable": {"thread_id": "s"}}
    message: Any = {"messages": [("user", "Where are my parcels?")]}
    if not keeps:
        return timed(lambda: graph.compile().invoke(message, config))
    with SqliteSaver.from_conn_string(str(folder / "kept.db")) as saver:
        compiled = graph.compile(checkpointer=saver)
        return timed(lambda: compiled.invoke(message, config, durability="sync"))


def agno(steps: int, folder: Path, *, keeps: bool) -> float:
    from agno.agent import Agent
    from agno.db.sqlite import SqliteDb
    from agno.models.base import Model
    from agno.models.response import ModelResponse

    asked = iter(range(steps))

    class Scripted(Model):
        def invoke(self, *_args: Any, **_more: Any) -> ModelResponse:
            number = next(asked, None)
            if number is None:
                return ModelResponse(role="assistant", content=ANSWER)
            function = {"name": "found", "arguments": json.dumps({"number": number})}
            calls = [{"id": f"c{number}", "type": "function", "function": function}]
            return ModelResponse(role="assistant", content="Let me look.", tool_calls=calls)

        async def ainvoke(self, *args: Any, **more: Any) -> ModelResponse:
            return self.invoke(*args, **more)

        def invoke_stream(self, *args: Any, **more: Any) -> Any:
            yield self.invoke(*args, **more)

        async def ainvoke_stream(self, *args: Any, **more: Any) -> Any:
            yield self.invoke(*args, **more)

        def _parse_provider_response(self, response: Any, **_more: Any) -> Any:
            return response

        def _parse_provider_response_delta(self, response: Any) -> Any:
            return response

    db = SqliteDb(db_file=str(folder / "kept.db")) if keeps else None
    agent = Agent(model=Scripted(id="scripted"), tools=[found], db=db, telemetry=False)
    return timed(lambda: agent.run("Where are my parcels?", session_id="s"))


def pydantic_ai(steps: int, _folder: Path, *, keeps: bool) -> float:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import UsageLimits

    assert not keeps
    asked = iter(range(steps))

    def model(_messages: Any, _info: Any) -> ModelResponse:
        number = next(asked, None)
        if number is None:
            return ModelResponse(parts=[TextPart(ANSWER)])
        return ModelResponse(parts=[TextPart("Let me look."), ToolCallPart("found", {"number": number})])

    agent = Agent(FunctionModel(model), tools=[found])
    limits = UsageLimits(request_limit=None)
    return timed(lambda: agent.run_sync("Where are my parcels?", usage_limits=limits))


def openai_agents(steps: int, folder: Path, *, keeps: bool) -> float:
    from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)
    asked = iter(range(steps))

    class Scripted(Model):
        async def get_response(self, *_args: Any, **_more: Any) -> ModelResponse:
            number = next(asked, None)
            made: Any
            if number is None:
                text = ResponseOutputText(type="output_text", text=ANSWER, annotations=[])
                made = ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            else:
                made = ResponseFunctionToolCall(
                    type="function_call", call_id=f"c{number}", name="found", arguments=json.dumps({"number": number})
                )
            return ModelResponse(output=[made], usage=Usage(), response_id=None)

        def stream_response(self, *_args: Any, **_more: Any) -> Any:
            raise NotImplementedError

    session = SQLiteSession("s", str(folder / "kept.db")) if keeps else None
    agent = Agent(name="desk", model=Scripted(), tools=[function_tool(found)])
    asking = Runner.run(agent, "Where are my parcels?", session=session, max_turns=steps + 5)
    return timed(lambda: asyncio.run(asking))


def timed(do: Any) -> float:
    """Return the CPU seconds of one call of `do`."""
    start = time.process_time()
    do()
    return time.process_time() - start


LOADS = {"langgraph": langgraph, "agno": agno, "pydantic-ai": pydantic_ai, "openai-agents": openai_agents}

if __name__ == "__main__":
    name, kept, _ = sys.argv[1].partition("+")
    count = int(sys.argv[2])
    with tempfile.TemporaryDirectory() as made_folder:
        spent = LOADS[name](count, Path(made_folder), keeps=bool(kept))
        size = sum(file.stat().st_size for file in Path(made_folder).rglob("*") if file.is_file())
    print(json.dumps({"us": spent / count * 1e6, "kb": size / count / 1000 if kept else None}))
