"""A tool whose work a person does: the model asks, the turn waits, and the person's answer is the result."""

from typing import Any

from gesta.function_tool.tool import Tool

SCHEMA = {
    "type": "object",
    "properties": {"question": {"type": "string", "description": "One question, complete in itself."}},
    "required": ["question"],
    "additionalProperties": False,
}


def ask_person(
    name: str = "ask_person",
    description: str = "Ask the person who is responsible, and wait for the answer.",
    *,
    answer: dict[str, Any] | None = None,
) -> Tool:
    """Return a tool by which a model asks a person a question.

    Args:
        answer: JSON Schema of the answer; `None` for any text.
    """
    return Tool(
        name=name,
        description=description,
        args_schema=SCHEMA,
        function=_nobody,
        effect="pure",
        declared=True,
        asks=True,
        answer_schema=answer,
    )


def _nobody(question: str) -> str:
    raise AssertionError(f"a person answers {question!r}")
