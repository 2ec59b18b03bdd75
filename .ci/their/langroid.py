"""The tests of Langroid 0.65.16, and what stands for the names that they import."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from theirs import Kind

import gesta
import gesta.compat.langroid as lr
from gesta.compat.langroid.batch import Batch, ExceptionHandling
from gesta.compat.langroid.language_models.openai_gpt import OpenAIGPTConfig
from gesta.compat.langroid.signals import parse_routing
from gesta.text.objects import objects

BOOLS = (True, False)
NAMES = {"langroid": "gesta.compat.langroid", "langroid.agent.batch": "gesta.compat.langroid.batch"}


class Ignored:
    """A setting of what Gesta does not have; it has no effect."""

    def __init__(self, *_args: Any, **fields: Any) -> None:
        self.__dict__.update(fields)


def ignored(*_args: Any, **_fields: Any) -> Any:
    """Change a setting that Gesta does not have."""
    return nullcontext()


class AnyOf(type(OpenAIGPTConfig)):
    """Leaves out what is set for providers alone."""

    def __call__(cls, **fields: Any) -> Any:
        """Make one of the fields that it has."""
        return super().__call__(**{name: fields[name] for name in fields if name in cls.__struct_fields__})


class AnyGPTConfig(OpenAIGPTConfig, kw_only=True, metaclass=AnyOf):
    """A model that no test without a key can ask."""

    type: str = "openai"
    timeout: int = 20
    async_stream_quiet: bool = False
    stream: bool = True

    def model(self) -> Any:
        """Return a model that has nothing to say."""
        return gesta.scripted()


class Config(lr.ChatAgentConfig, kw_only=True):
    """Settings of an agent, with those that have no effect."""

    llm: Any = AnyGPTConfig()
    vecdb: Any = None
    parsing: Any = None
    prompts: Any = None
    show_stats: bool = True
    debug: bool = False


class ChatAgent(lr.ChatAgent):
    """An agent with the private names that tests use, each made of public ones."""

    llm_functions_handled = property(lambda self: self.llm_tools_handled)
    llm_functions_usable = property(lambda self: self.llm_tools_usable)

    def __init__(self, config: Any = None, *args: Any, **fields: Any) -> None:
        super().__init__(config, *args, **fields)
        self.llm = None if self.config.llm is None else SimpleNamespace(reset_usage_cost=ignored)

    @property
    def llm_functions_map(self) -> dict[str, Any]:
        """The schemas of its tools."""
        return {name: cls.llm_function_schema() for name, cls in self.llm_tools_map.items()}

    @property
    def llm_function_force(self) -> dict[str, Any] | None:
        """The tool that the model must use."""
        return {"name": self.llm_tool_forced} if self.llm_tool_forced else None

    def _get_tool_list(self, cls: Any = None) -> list[str]:
        return list(self.llm_tools_map) if cls is None else [cls.name()]

    def _render_llm_response(self, response: Any) -> None:
        """Print nothing."""


async def process(inputs: Any, do: Any, start_idx: int = 0, **how: Any) -> list[Any]:
    """What a batch does with one part."""
    return await Batch(**{"sequential": False} | how).each(inputs, lambda given, i: do(given, i + start_idx))


def convert(how: Any) -> Any:
    """What a truth value stands for."""
    return {True: ExceptionHandling.RETURN_NONE, False: ExceptionHandling.RAISE}.get(how, how)


def parse_addressed_message(content: str, addressing: str = "@") -> tuple[str, str]:
    """Split a text into whom it is for and the rest."""
    found = parse_routing(content, addressing)
    return found.recipient, found.content


def top_level_json(text: str) -> list[str]:
    """Find the JSON objects in a text."""
    return [text[found.start : found.end] for found in objects(text)]


AGENTS = {"ChatAgent": ChatAgent, "ChatAgentConfig": Config}
SETTINGS = {"Settings": Ignored, "set_global": ignored, "settings": SimpleNamespace(quiet=False)}
GIVEN = {
    "langroid": AGENTS,
    "langroid.agent": AGENTS,
    "langroid.agent.chat_agent": AGENTS,
    "langroid.agent.batch": {"_process_batch_async": process, "_convert_exception_handling": convert},
    "langroid.utils.types": {"is_callable": callable},
    "langroid.parsing.parse_json": {"extract_top_level_json": top_level_json},
    "langroid.parsing.routing": {"parse_addressed_message": parse_addressed_message},
    "langroid.language_models": {"OpenAIGPTConfig": AnyGPTConfig},
    "langroid.language_models.openai_gpt": {"OpenAIGPTConfig": AnyGPTConfig},
    "langroid.utils.configuration": SETTINGS | {"temporary_settings": ignored},
    "langroid.cachedb.redis_cachedb": {"RedisCacheConfig": Ignored},
    "langroid.parsing.parser": {"ParsingConfig": Ignored},
    "langroid.prompts.prompts_config": {"PromptsConfig": Ignored},
    "langroid.vector_store.base": {"VectorStoreConfig": Ignored},
    "langroid.agent.special.doc_chat_agent": {"apply_nest_asyncio": ignored},
}
NAMES_OF_FILES = """
async_handlers batch batch_tasks_typed callbacks chat_agent done_sequence_parser done_sequences done_sequences_dsl
handle_message_security html_logger llm_response msg_routing mytypes object_registry prep_llm_message
stateless_tool_messages structured_output task task_inf_loop task_lineage_rewind task_optional_logger token_usage
tool_handler tool_handler_async tool_messages tool_messages_async tool_orchestration tool_origin_taint
tool_taint_laundering xml_tool_message
"""
FILES = [f"tests/main/test_{each}.py" for each in NAMES_OF_FILES.split()]
"""Files without a test that runs without a key are left out."""


def of(file: str, tests: str) -> tuple[str, ...]:
    """Names of tests of a file."""
    return tuple(f"test_{file}.py::test_{each}" for each in tests.split())


HOW = ("notool", "handle", "response", "response_with_doc")
KEYED = (
    *of("batch", "task_gen_batch_exceptions"),
    *of(
        "chat_agent", "agent_file_chat chat_agent chat_agent_system_message process_messages responses simple_task task"
    ),
    *of("stateless_tool_messages", "handle_bad_tool_message[True] llm_tool_message llm_tool_message_async"),
    *of("structured_output", "llm_strict_json llm_strict_json_async llm_structured_output_list"),
    *of("structured_output", "llm_structured_output_nested output_format_tools"),
    *of("task", "task_2_agent_2_tool task_2_agent_tool task_cost task_default_human_response task_done_condition"),
    *of("task", "task_empty_response task_output_format_sequence task_output_format_sequence_async"),
    *of("task", "task_tool_agent_response task_tool_num"),
    *of("task_lineage_rewind", "rewind_tool"),
    *of("token_usage", "agent_token_usage agent_token_usage_async cached_tokens_tracking token_usage_tool"),
    *(
        f"test_tool_messages.py::test_agent_malformed_tool[True-{a}-{b}-{c}-True]"
        for a in BOOLS
        for b in BOOLS
        for c in BOOLS
    ),
    *of("tool_messages", "disable_message_use handle_bad_tool_message[True] llm_end_with_tool llm_non_tool"),
    *of("tool_messages", "llm_tool_message llm_tool_task multi_tool oai_tool_choice strict_fallback"),
    *of("tool_messages", "strict_recovery_only_from_LLM strict_schema_mismatch structured_recovery"),
    *of("tool_messages", "tool_handler_invoking_llm tool_no_task tool_optional_args valid_structured_recovery"),
    *of("tool_messages_async", "llm_tool_message strict_fallback_async strict_recovery_only_from_LLM_async"),
    *of("tool_messages_async", "strict_schema_mismatch_async structured_recovery_async"),
    *of("tool_orchestration", "llm_done_tool orch_tools orch_tools_async send_tools"),
    *of("xml_tool_message", "llm_complex_xml_tool_message llm_xml_tool_message"),
)
PRIVATE = (
    *of("tool_origin_taint", "interactive_user_response_is_tainted system_user_response_not_tainted"),
    *of("tool_origin_taint", "donepass_repackage_propagates_taint donepass_repackage_of_llm_message_not_tainted"),
    *of("tool_messages", "reduce_raw_tool_result multi_agent_tool_caching"),
    *of("structured_output", "output_format_instructions"),
)
ADDED = "add_recipient_stash_is_a_classvar_not_a_private_attr add_recipient_tool_does_not_launder_user_content"
ADDED += " recipient_tool_two_step_stash_carries_taint rewind_then_add_recipient_composition_is_blocked"
IDS = (*of("task_lineage_rewind", "lineage_1_task lineage_2_task"), *of("mytypes", "docmetadata_id_conversion"))
IDS += of("chat_agent", "llm_response_messages_no_registry_leak task_init_no_registry_leak")
WORDS = (
    *of("done_sequence_parser", "parse_invalid_patterns"),
    *of("tool_messages", "enable_message_validates_arguments handle_bad_tool_message"),
    *of("stateless_tool_messages", "handle_bad_tool_message"),
)
LAST_WORDS = (
    *of("msg_routing", "addressing no_addressing"),
    *of("task", "task_kill"),
    *of("task_inf_loop", "task_stall"),
    *of("tool_messages", "handle_llm_no_tool"),
    *(f"test_tool_messages.py::test_tool_handlers_and_results[{how}-tool]" for how in HOW),
)
KINDS = [
    Kind("left out", "Needs a model with a key, in Langroid too", KEYED),
    Kind("beside", "What is inside of tools in XML", ("test_xml_tool_message.py",)),
    Kind("beside", "Files of HTML and TSV beside the record", ("test_html_logger.py", "test_task_optional_logger.py")),
    Kind("beside", "Objects by id: a registry", ("test_object_registry.py", *IDS)),
    Kind("beside", "Callbacks that print", ("test_callbacks.py", *of("async_handlers", "async_user_response"))),
    Kind(
        "beside",
        "The wire form of providers, and a history that is cut to the length of a window",
        ("test_llm_response.py", "test_prep_llm_message.py"),
    ),
    Kind("beside", "Private names, which the document does not show", PRIVATE),
    Kind(
        "beside",
        "A text that waits for its recipient is on the record, and not on a class",
        of("tool_taint_laundering", ADDED),
    ),
    Kind(
        "beside",
        "Counts of tokens and costs of the whole process",
        (*of("token_usage", "cached_tokens_in_llm_response"), *of("chat_agent", "agent_init_state")),
    ),
    Kind("beside", "The words of an error", WORDS),
    Kind(
        "beside",
        "A result in words is a document there; the document says text, as here",
        (*of("tool_messages", "agent_handle_message"), *of("stateless_tool_messages", "agent_handle_message")),
    ),
    Kind("beside", "Event loops inside each other, by nest_asyncio", of("async_handlers", "async_tool_handler")),
    Kind("fails", "What was said last is the result, where there it is lost", LAST_WORDS),
    Kind("fails", "JSON without a name is never a call", of("tool_messages", "agent_infer_tool")),
    Kind("fails", "The system message is never hidden", of("chat_agent", "clear_history")),
]


@pytest.fixture
def test_settings() -> Ignored:
    """What their fixture of that name gives."""
    return Ignored(chat_model="", stream=False, cache=False, max_turns=100)


def pytest_configure(config: Any) -> None:
    """Make their marks known."""
    for mark in ("asyncio", "fallback", "flaky(reruns, reruns_delay)"):
        config.addinivalue_line("markers", mark)
