"""TrustGraph's messages (requests to an agent, and its responses), and functions that make them from a record.

`to_json` and `from_json` follow TrustGraph's rules. JSON of a response leaves out empty members, except
`end_of_message` and `end_of_dialog`. The type of a response is read from `message_type` or from the older `chunk_type`,
and is written as `message_type`.

A request contains the whole history, because TrustGraph's services store no history. Gesta stores the history in the
record, as the entries of a run. A turn is the work on one question. `request_of` makes a request from the entries of a
run, and `contents_of` makes entry contents from a history. Members that mean nothing to Gesta are kept and ignored; see
docs/patterns.md.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

import msgspec
from msgspec import Struct

from gesta.agent import Agent, joined
from gesta.compat.langchain.agents import AgentAction, AgentStep
from gesta.compat.langchain.steps import contents, steps
from gesta.entry import Entry
from gesta.events import Event
from gesta.kinds import (
    BeginContent,
    ChatCompletionContent,
    Content,
    DecisionContent,
    EndContent,
    PlanContent,
    SystemContent,
    ToolResultContent,
    UserContent,
)
from gesta.model.usage import tokens
from gesta.prompt import observation_text

RETRIEVAL = "urn:graph:retrieval"
"""The name of the RDF graph that contains the explanations."""
RESPONSES = frozenset({"thought", "observation", "answer", "explain", "error", "retract"})
"""Types of events for which there is a response. TrustGraph has no message for a call, a wait, a retry or an end."""
FAILED = "agent-error"


class PlanStep(Struct, kw_only=True):
    """A step of a plan, as a request's history contains it."""

    goal: str = ""
    tool_hint: str = ""
    depends_on: list[int] = []
    status: str = "pending"
    """`pending`, `running`, `completed` or `failed`."""
    result: str = ""


class HistoryStep(Struct, kw_only=True):
    """An item of a request's history: a thought, an action and its observation. TrustGraph calls it `AgentStep`."""

    thought: str = ""
    action: str = ""
    arguments: dict[str, Any] = {}
    """Arguments as the tool received them."""
    observation: str = ""
    step_type: str = ""
    """Empty, `plan`, `execute`, `synthesise` or `subagent-completion`."""
    plan: list[PlanStep] = []
    subagent_results: dict[str, str] = {}
    """Only in a step of type `synthesise`: the answers of sub-agents, by the goal that each one worked on."""


class AgentRequest(Struct, kw_only=True):
    """A request that asks an agent to do its next step."""

    question: str = ""
    state: str = ""
    group: list[str] | None = None
    """Groups of tools that the agent may use. `None` means the group `default`; an empty list means no tools."""
    history: list[HistoryStep] = []
    user: str = ""
    collection: str = "default"
    streaming: bool = False
    session_id: str = ""
    conversation_id: str = ""
    pattern: str = ""
    task_type: str = ""
    framing: str = ""
    correlation_id: str = ""
    """Only in a request to a sub-agent: the id that its parent gave. In Gesta it is the id of the parent's run."""
    parent_session_id: str = ""
    subagent_goal: str = ""
    expected_siblings: int = 0

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the request in a JSON text. Unknown members are ignored.

        Raises msgspec.ValidationError, which names the path of the wrong member.
        """
        return msgspec.json.decode(text, type=cls)

    def to_json(self) -> str:
        """Return the request as JSON text, with all members."""
        return msgspec.json.encode(self).decode()


class Problem(Struct, kw_only=True):
    """The error that a response reports."""

    type: str = FAILED
    message: str = ""


class Used(Struct, frozen=True):
    """The number of tokens that an agent's model used, and the model of the last reply."""

    in_token: int | None = None
    """Tokens sent to the model; `None` if the provider did not report the tokens of every reply."""
    out_token: int | None = None
    model: str | None = None
    """The model of the last reply."""


class AgentResponse(Struct, kw_only=True):
    """A message that an agent sends while it works."""

    message_type: str = ""
    """`thought`, `action`, `observation`, `answer`, `explain` or `error`.

    Gesta adds `retract`, which withdraws the words streamed so far, because the stream was lost.
    """
    chunk_type: str = ""
    """The older name of `message_type`. The constructor sets both to the one that is passed."""
    content: str = ""
    end_of_message: bool = False
    end_of_dialog: bool = False
    message_id: str = ""
    explain_id: str = ""
    explain_graph: str = ""
    explain_triples: list[Any] = []
    error: Problem | None = None
    in_token: int | None = None
    out_token: int | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        """Set `message_type` and `chunk_type` to the same value."""
        self.message_type = self.chunk_type = self.message_type or self.chunk_type

    @property
    def final(self) -> bool:
        """Whether the response is the last one of the dialogue."""
        return self.end_of_dialog

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the response in a JSON text, which states its type as `message_type` or as `chunk_type`.

        Raises msgspec.ValidationError, which names the path of the wrong member.
        """
        return msgspec.json.decode(text, type=cls)

    def to_json(self) -> str:
        """Return the response as JSON text. Empty members are left out, except `end_of_message` and `end_of_dialog`."""
        given = msgspec.to_builtins(self)
        kept = {name: value for name, value in given.items() if value not in ("", None, []) and name != "chunk_type"}
        return msgspec.json.encode(kept).decode()


def request_of(
    entries: Iterable[Entry],
    *,
    before: int | None = None,
    agent: Agent[Any] | None = None,
    parent: Iterable[Entry] = (),
) -> AgentRequest:
    """Return the request for the next step of a run. The request contains the last turn's question and steps.

    Args:
        before: use only entries with a lower seq (number in the run).
        agent: the agent of the turn. Its groups, instructions and first state are not in the entries.
        parent: for the run of a sub-agent: the entries of the run that started it. They show how many sub-agents work.
    """
    known = [entry for entry in entries if before is None or entry.seq < before]
    opened = next((each.content.opened for each in known if isinstance(each.content, BeginContent)), None)
    assert opened is not None, "a run begins with its opening"
    begun = [place for place, each in enumerate(known) if _opens(each.content)]
    turn = known[begun[-1] :] if begun else known
    request = AgentRequest(question="", session_id=known[0].run, conversation_id=opened.session)
    if agent is not None:
        request.group = None if agent.groups is None else list(agent.groups)
        request.state, request.framing = agent.state, agent.instructions if isinstance(agent.instructions, str) else ""
    request.history = [history_step(each) for each in steps(turn) if isinstance(each, AgentStep)]
    request.history += _planned(turn)
    for entry in turn:
        content = entry.content
        if isinstance(content, UserContent | SystemContent) and not request.question:
            request.question, request.user = content.value, getattr(content, "user_id", None) or request.user
        elif isinstance(content, DecisionContent) and content.task_type is not None:
            request.pattern, request.task_type = content.choice, content.task_type
        request.state = _state(content) or request.state
    if opened.parent_run is not None:
        request.correlation_id = request.parent_session_id = opened.parent_run
        request.subagent_goal = request.question
        plans = [each.content for each in parent if isinstance(each.content, PlanContent)]
        request.expected_siblings = len(plans[-1].steps) if plans and plans[-1].role == "decomposition" else 0
    return request


def history_step(step: AgentStep) -> HistoryStep:
    """Return a step, with its action and observation, as an item of a request's history."""
    action, observation = step.action, observation_text(step.observation)
    arguments = action.tool_input if isinstance(action.tool_input, dict) else {"input": action.tool_input}
    thought = next((said.content for said in action.messages if isinstance(said.content, str)), "")
    return HistoryStep(thought=thought, action=action.tool, arguments=arguments, observation=observation)


def contents_of(history: Iterable[HistoryStep]) -> list[Content]:
    """Return the entry contents for a history, in order: model replies, tool calls and their results."""
    acted = [each for each in history if each.action and each.step_type != "subagent-completion"]
    return contents(
        [AgentStep(AgentAction(each.action, each.arguments, each.thought), each.observation) for each in acted]
    )


def agent_for(
    request: AgentRequest,
    patterns: Mapping[str, Agent[Any]],
    otherwise: Agent[Any],
    rights: Mapping[str, Collection[str]] | None = None,
) -> Agent[Any]:
    """Return the agent that a request asks for, with the request's groups, state and framing (added instructions).

    Args:
        patterns: agents by the name of their pattern.
        otherwise: the agent, such as a router, for a request that names none of these patterns.
        rights: groups of tools that each user may use; see `entitled`. With `None`, a request gets any group it asks
            for.
    """
    agent = patterns.get(request.pattern, otherwise)
    said = joined(agent.instructions, request.framing)
    groups = agent.groups if request.group is None else tuple(request.group)
    agent = msgspec.structs.replace(agent, groups=groups, state=request.state or agent.state, instructions=said)
    return agent if rights is None else entitled(agent, request.user, rights)


def entitled(agent: Agent[Any], user: str, rights: Mapping[str, Collection[str]]) -> Agent[Any]:
    """Return a copy of an agent that may use only the groups of tools that `user` may use.

    The limit also applies to the agents that this agent calls. The program itself must verify who the user is.

    Args:
        rights: groups by user. The group `*` means all groups. A user who is not listed may use no group.
    """
    asked = ("default",) if agent.groups is None else tuple(agent.groups)
    granted = rights.get(user, ())
    if "*" in granted:
        return agent
    kept = tuple(granted) if "*" in asked else tuple(group for group in asked if group in granted)
    return msgspec.structs.replace(agent, groups=kept)


def by_goal(found: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a dict of results by goal. A goal that occurs again gets a number, as in `goal (2)`."""
    results: dict[str, str] = {}
    for goal, result in found:
        name, number = goal, 1
        while name in results:
            number += 1
            name = f"{goal} ({number})"
        results[name] = result
    return results


def used_of(entries: Iterable[Entry]) -> Used:
    """Return the sum of the tokens of all model replies in these entries, and the model of the last reply.

    The entries may also include those of child runs.
    """
    replies = [each.content for each in entries if isinstance(each.content, ChatCompletionContent)]
    counts = [count for each in replies if (count := tokens(each.usage)) is not None]
    model = next((each.model for each in reversed(replies) if each.model), None)
    if len(counts) < len(replies):
        return Used(model=model)
    return Used(sum(each.input for each in counts), sum(each.output for each in counts), model)


def response_of(event: Event, used: Used | None = None) -> AgentResponse:
    """Return the response for an event. The type of the event must be in `RESPONSES`.

    Args:
        used: token counts to set on a response that ends the dialogue.
    """
    response = AgentResponse(message_type=event.type, content=event.content)
    response.end_of_message, response.end_of_dialog = event.end_of_message, event.end_of_dialog
    if event.explain_id is not None:
        response.explain_id, response.explain_graph = event.explain_id, RETRIEVAL
    elif event.message or event.seq:
        response.message_id = f"{event.run}.{event.message or event.seq}"
    if event.type == "error":
        response.error = Problem(message=event.content)
    if event.end_of_dialog and used is not None:
        response.in_token, response.out_token, response.model = used.in_token, used.out_token, used.model
    return response


def responses_of(events: Iterable[Event], used: Used | None = None) -> list[AgentResponse]:
    """Return the responses for the events of a turn. Events whose type is not in `RESPONSES` are left out.

    Args:
        used: token counts to set on a response that ends the dialogue.
    """
    return [response_of(event, used) for event in events if event.type in RESPONSES]


def _opens(content: Content) -> bool:
    return isinstance(content, BeginContent) and content.role == "turn"


def _state(content: Content) -> str:
    """Return the state that a tool's result set; empty if the content is not a tool result or set no state."""
    return content.state if isinstance(content, ToolResultContent) and isinstance(content.state, str) else ""


def _planned(turn: Iterable[Entry]) -> list[HistoryStep]:
    """Return a list with one history item: the turn's last plan and its results. The list is empty without a plan.

    If the question was divided into goals instead, the item contains the answers by goal.
    """
    found: list[PlanStep] = []
    divided = False
    numbered: dict[str, PlanStep] = {}
    places: dict[int, str] = {}
    for entry in turn:
        match entry.content:
            case PlanContent(steps=planned, role=role):
                divided = role == "decomposition"
                found = [
                    PlanStep(goal=each.goal, tool_hint=each.tool_hint or "", depends_on=each.depends_on or [])
                    for each in planned
                ]
                numbered = {str(place): each for place, each in enumerate(found)}
            case BeginContent(name=name, role="step" | "finding"):
                places[entry.seq] = name.rpartition(" ")[2]
            case EndContent(status=status, state=value, error=error) if places.get(entry.span) in numbered:
                step = numbered[places[entry.span]]
                step.status = "completed" if status == "success" else "failed"
                step.result = observation_text(value) if error is None else error.message
    if divided:
        results = by_goal((each.goal, each.result) for each in found if each.status != "pending")
        return [HistoryStep(step_type="synthesise", subagent_results=results)]
    return [HistoryStep(step_type="plan", plan=found)] if found else []
