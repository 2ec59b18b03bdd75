"""Six hundred random tasks with Langroid and with `gesta.compat.langroid`: who is asked what, and what comes out.

Skipped without langroid; `.ci/originals langroid` runs it. What may differ is decided by the program, so a difference
that no class foresees fails, and so does a class that is none any more; at most one program in a hundred differs.
"""

import logging
import random
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("langroid") is None:  # it is imported by the next of these, with a tokenizer of its own
    pytest.skip("without langroid", allow_module_level=True)
from tests.seeds.orchestrations import Actor, Case, Item, Library, case_of, play
from tests.seeds.test_002_beside import theirs

import gesta
import gesta.compat.langroid as ours

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(3000)]
base = pytest.importorskip("langroid.language_models.base")
mock_lm = pytest.importorskip("langroid.language_models.mock_lm")
theirs.utils.configuration.settings.quiet = True
logging.getLogger("langroid").setLevel(logging.ERROR)
CASES = 600
PASSED_BACK = "what came from a sub-task is passed back to it, which stalls there"
PASSED_ON = "PassTool has somebody else answer, and there the same model again"
Says = Callable[[list[str]], Item]


class Speaking(mock_lm.MockLM):  # type: ignore[name-defined]  # of a library that mypy does not see
    """A model of theirs that follows a script, with native calls too."""

    calls = 0

    def __init__(self, say: Says, tokens: int = 0, usd: float = 0) -> None:
        super().__init__(mock_lm.MockLMConfig(chat_model="mock"))
        self.say, self.tokens, self.usd = say, tokens, usd

    def supports_functions_or_tools(self) -> bool:
        return True

    def chat(self, messages: Any, *_args: Any, **_given: Any) -> Any:
        self.update_usage_cost(chat=True, prompts=self.tokens, completions=0, cost=self.usd)
        item = self.say(told([(each.role, each.content) for each in messages]))
        if isinstance(item, str):
            return base.LLMResponse(message=item)
        made = []
        for name, args in item:
            Speaking.calls += 1
            function = base.LLMFunctionCall(name=name, arguments=dict(args))
            made.append(base.OpenAIToolCall(id=f"call_{Speaking.calls}", type="function", function=function))
        return base.LLMResponse(message="", oai_tool_calls=made)


class Priced(ours.language_models.LLMConfig, kw_only=True):
    """A model of ours that follows a script."""

    say: Any
    tokens: int = 0
    usd: float = 0

    def model(self) -> Any:
        return gesta.function(self.reply)

    def reply(self, messages: list[dict[str, Any]], _header: Any) -> Any:
        item = self.say(told([(each["role"], each["content"]) for each in messages]))
        text, calls = (item, []) if isinstance(item, str) else ("", [gesta.call(name, **args) for name, args in item])
        return gesta.reply(text, calls=calls, usage={"prompt_tokens": self.tokens, "completion_tokens": 0})

    def price(self) -> Any:
        return Each(self.usd)


class Each:
    """A price for each reply."""

    dated = "each"

    def __init__(self, usd: float) -> None:
        self.of_one = usd

    def usd(self, usage: dict[str, Any]) -> float:
        return self.of_one if usage else 0.0


def told(messages: list[tuple[str, str | None]]) -> list[str]:
    """What a model was told since it spoke last."""
    last = max((n for n, (role, _) in enumerate(messages) if role == "assistant"), default=-1)
    return [text or "" for role, text in messages[last + 1 :] if role != "system"]


def theirs_made(config: Any, say: Says) -> Any:
    config.llm = mock_lm.MockLMConfig()
    agent = theirs.ChatAgent(config)
    agent.llm = Speaking(say)
    return agent


def ours_made(config: Any, say: Says) -> Any:
    config.llm = Priced(say=say)
    return ours.ChatAgent(config)


THEIRS = Library(theirs, theirs_made, {"enable_loggers": False, "enable_html_logging": False})
OURS = Library(ours, ours_made, {})


def why(case: Case) -> str:
    """Why a program may come out otherwise here; empty if it must not."""
    passed = [each for actor in actors(case.root) for each in enumerate(actor.script) if passes(each[1])]
    if any(not isinstance(item, str) and item[0][0] == "pass_tool" for _, item in passed):
        return PASSED_ON
    return PASSED_BACK if any(place for place, _ in passed) else ""


def passes(item: Item) -> bool:
    """Does a model pass on what waits?"""
    return item.startswith("__PASS__") if isinstance(item, str) else item[0][0] in ("pass_tool", "forward_tool")


def actors(actor: Actor) -> list[Actor]:
    return [actor, *(below for each in actor.subs for below in actors(each))]


def same(here: list[Any], there: list[Any]) -> bool:
    """Is all the same? When a circle is found is not compared."""
    if here[-1:] == there[-1:] == [("raised", "InfiniteLoopException")]:
        least = min(len(here), len(there)) - 1
        return here[:least] == there[:least]
    return here == there


def test_random_tasks_run_the_same_way() -> None:
    differ: dict[str, list[int]] = {}
    for seed in range(CASES):
        case = case_of(seed)
        there, here = play(THEIRS, case), play(OURS, case)
        if not same(here, there):
            assert why(case), (seed, case, here, there)
            differ.setdefault(why(case), []).append(seed)
    print(f"{CASES} programs; differ: {differ}")
    assert set(differ) <= {PASSED_BACK, PASSED_ON}
    assert sum(map(len, differ.values())) <= CASES / 100


PASS: Item = (("pass_tool", {}),)
STILL: dict[str, tuple[Item, ...]] = {
    PASSED_ON: (PASS, "DONE 38"),
    PASSED_BACK: ("__SEND__:Bob what is 33?", "__PASS__:Bob", "DONE 5"),
}
"""What a model says that brings out a difference."""


@pytest.mark.parametrize("reason", STILL)
def test_each_class_of_differences_still_is_one(reason: str) -> None:
    case = Case(Actor("Ann", STILL[reason], subs=(Actor("Bob", ("DONE 14",)),)))
    assert why(case) == reason
    assert play(THEIRS, case) != play(OURS, case)


def rounds(langroid: Any, agent: Any, limits: dict[str, Any]) -> Any:
    """How a task ends that would go on for ever."""
    library = THEIRS if langroid is theirs else OURS
    agent.enable_message(library.tools["square"])
    task = langroid.Task(agent, interactive=False, config=langroid.TaskConfig(**library.quiet, inf_loop_cycle_len=0))
    library.seen.clear()
    result = task.run("go", **limits)
    status = task.status if langroid is ours else result.metadata.status
    return len(library.seen), str(status).rpartition(".")[2]


def test_random_limits_end_a_task_at_the_same_step() -> None:
    dice = random.Random(14)
    for _ in range(60):
        tokens, usd = dice.randint(1, 50), dice.randint(1, 50) / 64
        ways: list[dict[str, Any]] = [
            {"turns": dice.randint(1, 9)},
            {"max_tokens": dice.randint(1, 300)},
            {"max_cost": dice.randint(1, 300) / 64},
        ]
        limits = dice.choice(ways)
        numbers = iter(range(1000)), iter(range(1000))
        theirs_config, ours_config = theirs.ChatAgentConfig(name="Ann"), ours.ChatAgentConfig(name="Ann")
        agent = theirs_made(theirs_config, lambda _, n=numbers[0]: written(next(n)))  # type: ignore[misc]
        agent.llm = Speaking(agent.llm.say, tokens, usd)
        base.LanguageModel.usage_cost_dict.clear()
        ours_config.llm = Priced(say=lambda _, n=numbers[1]: written(next(n)), tokens=tokens, usd=usd)
        there, here = rounds(theirs, agent, limits), rounds(ours, ours.ChatAgent(ours_config), limits)
        assert here == there, (tokens, usd, limits, here, there)


def written(num: int) -> str:
    return f'{{"request": "square", "num": {num}}}'
