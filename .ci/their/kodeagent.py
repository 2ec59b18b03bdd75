"""The tests of KodeAgent 0.14 that touch its history formatters, its messages and its user messages.

FOLDER is a checkout of KodeAgent, whose tests are not in its distribution.
"""

from importlib.util import find_spec
from typing import Any

from theirs import Kind

NAMES = {"kodeagent": "gesta.compat.kodeagent"}
# What they import and use in no test that is run.
NAMES |= {name: "gesta.compat.kodeagent.absent" for name in ("requests", "tenacity") if find_spec(name) is None}
GIVEN: dict[str, dict[str, Any]] = {"requests": {"RequestException": OSError}}
FILES = ["tests/unit/test_history_formatter.py", "tests/unit/test_llm_message.py"]
FILES += ["tests/unit/test_kutils.py", "tests/unit/test_orchestrator.py"]


def of(file: str, tests: str) -> tuple[str, ...]:
    """Names of tests of a file."""
    return tuple(f"test_{file}.py::test_{each}" for each in tests.split())


OF_FILES = (
    "with_urls with_local_files with_images error_handling complex_scenario url_image_detected_by_mime "
    "local_image_no_mime_type text_file_read_error large_file unregistered_extension fallback_any_text invalid_path "
    "logger_error"
)
KINDS = [
    Kind(
        "left out",
        "Helpers that the document does not name",
        of(
            "kutils",
            "clean_json_string combine_user_messages is_it_url detect_file_type detect_file_type_errors is_image_file "
            "detect_file_type_content_type_fallback detect_file_type_content_type_ignores_json "
            "detect_file_type_logger_error call_llm_success call_llm_with_response_format call_llm_retries_on_failure "
            "call_llm_retries_on_empty_content call_llm_empty_response call_llm_exception "
            "call_llm_failure_after_all_retries call_llm_empty_choices_raises_valuer_error "
            "call_llm_empty_choices_then_success",
        ),
    ),
    Kind(
        "beside",
        "The test replaces what opens, fetches and logs files of a user; here nothing is fetched, and what is gone is "
        "named",
        tuple(f"test_kutils.py::test_make_user_message_{each}" for each in OF_FILES.split()),
    ),
    Kind(
        "beside",
        "Planner and observer are a program over the record, `react_agent`, and no objects with state",
        of(
            "orchestrator",
            "planner_create_plan planner_update_plan planner_get_steps_status planner_get_formatted_plan "
            "planner_empty_plan planner_reset planner_with_litellm_params observer_analyze observer_reset "
            "observer_with_custom_threshold observer_with_negative_threshold observer_exception_handling "
            "observer_yields_correction_message observer_retry_error",
        ),
    ),
]


def pytest_configure(config: Any) -> None:
    """Make its marks known."""
    config.addinivalue_line("markers", "asyncio: runs in an event loop")
