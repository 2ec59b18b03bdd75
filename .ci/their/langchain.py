"""The agents' tests of langchain-classic 1.0, run by its own code with the schema of `gesta.compat.langchain` in it.

FOLDER is the unpacked source distribution of langchain-classic, whose tests are in it; langchain-classic itself is
installed. Its executor, parsers and scratchpads make and read actions, steps and finishes: here they are Gesta's.
"""

import sys
from typing import Any

import langchain_core
from theirs import Kind

from gesta.compat.langchain import agents

sys.modules["langchain_core.agents"] = agents
langchain_core.agents = agents

NAMES: dict[str, str] = {}
GIVEN: dict[str, dict[str, Any]] = {}
FILES = [
    "tests/unit_tests/agents/format_scratchpad",
    "tests/unit_tests/agents/output_parsers",
    "tests/unit_tests/agents/test_agent.py",
    "tests/unit_tests/agents/test_agent_async.py",
    "tests/unit_tests/agents/test_agent_iterator.py",
    "tests/unit_tests/agents/test_chat.py",
    "tests/unit_tests/agents/test_initialize.py",
    "tests/unit_tests/agents/test_mrkl.py",
    "tests/unit_tests/agents/test_mrkl_output_parser.py",
    "tests/unit_tests/agents/test_openai_functions_multi.py",
    "tests/unit_tests/agents/test_structured_chat.py",
    "tests/unit_tests/agents/test_types.py",
]
KINDS = [
    Kind(
        "fails",
        "The test dumps what is pydantic's BaseModel; a shape here is dumped by a `model_dump` of its own",
        ("test_agent.py::test_openai_agent_with_streaming",),
    ),
    Kind(
        "fails",
        "A step of a native call is heard as a tool message with the call's id, which LangChain loses",
        ("test_agent.py::test_openai_agent_tools_agent",),
    ),
]


def pytest_configure(config: Any) -> None:
    """Make its marks known, and the helpers of its tests."""
    config.addinivalue_line("markers", "requires: needs another package")
    config.addinivalue_line("markers", "asyncio: runs in an event loop")
    sys.path.insert(0, str(config.rootpath))
