"""Every name of the history formatters can be imported from its place."""

import importlib

import pytest

from gesta.compat.kodeagent.codeact import CodeActHistoryFormatter
from gesta.compat.kodeagent.history import State
from gesta.compat.kodeagent.react import ReActHistoryFormatter
from gesta.prompt import Formatter

PATHS = [
    "gesta.compat.kodeagent.llm_message:LLMMessage",
    "gesta.compat.kodeagent.kutils:make_user_message",
    "gesta.compat.kodeagent.history:HistoryFormatter",
    "gesta.compat.kodeagent.models:ChatMessage",
    "gesta.compat.kodeagent.history:CODE_ACT_PSEUDO_TOOL_NAME",
    "gesta.compat.kodeagent.codeact:CODE_ACT_PSEUDO_TOOL_NAME",
    "gesta.compat.kodeagent.codeact:CodeActHistoryFormatter",
    "gesta.compat.kodeagent.react:ReActHistoryFormatter",
]
HOOKS = [
    "should_format_as_tool_call",
    "format_tool_call",
    "pydantic_to_dict",
    "_generate_tool_call_id",
    "_get_common_metadata",
    "_get_tool_call_metadata",
    "_get_final_answer_metadata",
    "_get_extra_metadata",
    "_format_user_or_generic",
]
FIELDS = "role content thought action args code final_answer files task_successful tool_call_id"


@pytest.mark.parametrize("path", PATHS)
def test_a_name_is_at_its_place(path: str) -> None:
    module, _, name = path.partition(":")
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("maker", [ReActHistoryFormatter, CodeActHistoryFormatter])
def test_a_hook_keeps_its_name(maker: type, hook: str) -> None:
    assert callable(getattr(maker, hook))


def test_the_view_has_the_known_fields() -> None:
    module = importlib.import_module("gesta.compat.kodeagent.models")
    assert set(FIELDS.split()) <= set(module.ChatMessage.__struct_fields__)


def test_both_are_formatters_of_the_spine() -> None:
    makers: list[Formatter[State]] = [ReActHistoryFormatter(), CodeActHistoryFormatter()]
    assert [maker.name for maker in makers] == ["ReActHistoryFormatter/1", "CodeActHistoryFormatter/1"]
    assert all(set(maker.start()) == {"last_tool_call_id", "pending_tool_call"} for maker in makers)
