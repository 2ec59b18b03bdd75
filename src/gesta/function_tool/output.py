"""The type that an agent's answer must have. The model reads the type's schema, and its answer is checked against it.

Any type that a tool's parameter may have is possible. An answer that does not fit is sent back to the model with its
errors, at most `Retry.corrections` times.
"""

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from msgspec import Struct
from msgspec.structs import force_setattr

from gesta.errors import BadArguments, BadTool
from gesta.function_tool.signature import union_advice
from gesta.function_tool.tool import Tool, tool
from gesta.text.objects import json_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", covariant=True, default=str)  # noqa: PLC0105 - users read this name in messages of type checkers
    V = TypeVar("V")
    TypeOf = type[V]  # `type` is also a field
else:
    from typing import TypeVar

    T = TypeVar("T")

By = Literal["native", "tool", "prompt"]
ANSWER = "answer"
"""Name of the tool with which a model answers, for outputs with `by="tool"`."""
FENCED = re.compile(r"\s*```[a-zA-Z]*\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
EXCERPT = 200  # characters of an answer that the model is shown again
WANTED = "Give a standard type, dataclass, TypedDict, Struct or pydantic model that JSON can hold, at module level."
ASKED = "Answer with one JSON value that fits this schema, and with nothing else:\n"


class Output(Struct, Generic[T], frozen=True, eq=False):
    """The type that an agent's answer must have, and how the model is made to use it."""

    type: Any
    """Any type that an argument of a tool may have."""
    by: By = "native"
    """`native`: the provider enforces the type. `tool`: the model calls a tool with the answer. `prompt`: the
    instructions ask for it."""
    schema: dict[str, Any] = {}
    """JSON Schema of an object, without references to other documents. The schema is computed from the type."""
    taker: Tool | None = None
    """A tool whose only parameter, `value`, has the type. The tool's check of arguments is used to check the answer."""

    if TYPE_CHECKING:

        @overload
        def __init__(self: "Output[V]", type: "TypeOf[V]", by: By = "native") -> None: ...
        @overload
        def __init__(self, type: Any, by: By = "native") -> None: ...
        def __init__(self, type: Any, by: By = "native") -> None: ...

    def __post_init__(self) -> None:
        """Compute `schema` and `taker` from the type. Raises BadTool for a type that JSON cannot hold."""

        def answer(value: Any) -> Any:
            return value

        answer.__annotations__ = {"value": self.type}
        try:
            taker = tool(answer, name=ANSWER, effect="pure")
        except BadTool as wrong:
            found = f"output={self.type!r:.60} is not a type for an answer ({wrong.__cause__ or wrong})"
            raise BadTool(f"{found}. {union_advice(self.type) or WANTED}") from wrong
        properties, defs = taker.args_schema["properties"]["value"], taker.args_schema.get("$defs", {})
        own = defs.get(properties.get("$ref", "").removeprefix("#/$defs/"), properties)
        plain = own.get("type") == "object"
        inner = {**own, **({"$defs": defs} if defs else {})} if plain else taker.args_schema
        force_setattr(self, "schema", {"additionalProperties": False, **inner} if plain else inner)
        force_setattr(self, "taker", taker)

    @property
    def wrapped(self) -> bool:
        """Whether the answer is the member `value` of a JSON object, because the type itself is not a JSON object."""
        assert self.taker is not None
        return self.schema is self.taker.args_schema

    def read(self, text: str) -> Any:
        """Return a model's answer as a value of the type.

        Raises:
            BadArguments: the answer does not fit. The message is for the model.
        """
        try:
            given = _answer_json(text)
        except (ValueError, RecursionError) as wrong:
            raise BadArguments(f"The answer is not JSON ({wrong}); it began {text[:EXCERPT]!r}") from wrong
        return self._fitting(given if self.wrapped else {"value": given}, shown=self.wrapped)

    def given(self, value: Any) -> Any:
        """Return a recorded answer as a value of the type.

        Also used for the return value of a program, a function that runs an agent's turns in place of a model.

        Args:
            value: JSON data, or a text.

        Raises:
            BadArguments: the value does not fit.
        """
        try:
            return self.read(value) if isinstance(value, str) else self._fitting({"value": value})
        except BadArguments:
            if isinstance(value, str):
                with suppress(BadArguments):
                    return self._fitting({"value": value})
            raise

    def _fitting(self, args: Any, *, shown: bool = False) -> Any:
        """Return a value, checked and converted to the type. Raises BadArguments if it does not fit.

        Args:
            args: an object whose member `value` is the value to check.
            shown: whether errors name the member `value`: the model knows it if it had to write such an object.
        """
        assert self.taker is not None
        try:
            return self.taker.arguments(args)["value"]
        except BadArguments as wrong:
            told = str(wrong).replace(f"Arguments of {ANSWER!r}", "The answer does not fit")
            raise BadArguments(told if shown else told.replace("$.value", "$")) from wrong

    def plain(self, text: str) -> Any:
        """Return the JSON data of an answer that fits the type; of a `wrapped` answer only its member `value`."""
        given = _answer_json(text)
        return given["value"] if self.wrapped else given

    def tool(self) -> dict[str, Any]:
        """Return the tool with which a model answers, in the form in which a request describes its tools."""
        return {"name": ANSWER, "description": "Give the answer.", "args_schema": self.schema}

    def asked(self) -> str:
        """Return the instruction that asks a model for an answer of the type."""
        return ASKED + json.dumps(self.schema, ensure_ascii=False)


def _answer_json(text: str) -> Any:
    """Return the value of a JSON text, which may be in a code fence. Raises ValueError or RecursionError."""
    found = FENCED.fullmatch(text)
    return json_of(found[1] if found else text)


def output_of(given: Any) -> Output[Any] | None:
    """Return the `Output` for a type; `None` for `None`. Raises BadTool for a value that is not a type."""
    if given is None or isinstance(given, Output):
        return given
    if isinstance(given, dict | str):
        raise BadTool(f"output is {given!r:.60}, expected a type, such as a dataclass, a TypedDict or list[int].")
    return Output(given)
