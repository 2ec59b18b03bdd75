"""What OpenAI's Chat Completions API takes as a request, from its published rules and its own error messages.

Looked up on 2026-11-21 in stored copies. [A] = the API's rule; [S] = stricter than the API, and for whom.

- [A] Shapes, minItems 1 of `messages` and parts, names of "a-z, A-Z, 0-9, […] underscores and dashes, with a maximum
  length of 64": openai/openai-openapi `openapi.yaml` @006e34be (of 2023), openai/openai-python `types/shared_params/
  function_definition.py` @1db4657d. Parts by role: its `types/chat/*_param.py` @7b6f1186, hexdocs.pm/ex_openai/1.8.0.
- [A] "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The
  following tool_call_ids did not have response messages: …": BerriAI/litellm#10083, 2025-04-17.
- [A] "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'": smarter-sh/smarter#264,
  2025-01-22; "'tool_call_id' of '…' not found in 'tool_calls' of previous message": dapr/dapr-agents#145, 2025-07-23;
  "Duplicate value for 'tool_call_id'" (a call answered twice): agno-agi/agno#5116; "Missing parameter
  'tool_call_id'": MadcowD/ell#325, 2024-10-21. [S] Answers in the order of the calls, where the API takes any: for us.
- [S] Ids of calls unique in the whole history, for Anthropic's "`tool_use` ids must be unique"
  (NVIDIA-NeMo/Switchyard#502, 2026-09-02), and not empty (openai/openai-dotnet#428, 2025-05-09).
- [S] Ids at most 40 characters. No limit is published. "Invalid 'messages[10].tool_calls[0].id': string too long.
  Expected a string with maximum length 40": agno-agi/agno#5382, 2025-11-11; so on Copilot, anomalyco/opencode#12653,
  2026-02-08; but a live call took 51 in vercel/ai#17233, 2026-07-14, and `call_id` of Responses may have 64
  (orchidfiles/ungate#26, 2026-07-15). An id of 40 passes all of them.
- [A] "Invalid 'messages[1].tool_calls': empty array": openai/openai-python#2061, 2025-01-28. "array too long. Expected
  an array with maximum length 128": openai/openai-dotnet#317, 2024-12-31; of `tools`: zed#42393, 2025-11-10.
- [A] "Invalid type for '….arguments': expected a string, but got an object": aaif-goose/goose-mobile#20, 2025-03-06.
  [S] They parse as a JSON object, for templates of other servers: sgl-project/sglang#28035, 2026-06-12.
- [A] "Invalid value for 'content': expected a string, got null": run-llama/llama_index#17921, 2025-02-25. [S] Nor is it
  empty without calls, for Mistral's "must have either content or tool_calls": OpenHands#8685, 2025-05-24.
- [A] "Image URLs are only allowed for messages with role 'user'": openai/openai-node#1030, 2024-09-03. "'messages[59].
  role' does not support 'function' with this model": TheR1D/shell_gpt#717, 2025-07-21. '^[a-zA-Z0-9_-]+$' also for
  `messages[1].name`: microsoft/autogen#4157, 2024-11-12. "Invalid 'messages': empty array": CopilotKit#529, 2024-08-11.
- [A] `tools` not empty, `tool_choice` only with `tools`, tried on the live API: vllm-project/vllm#40311, 2026-04-20;
  `parallel_tool_calls` likewise: openai/swarm#30, 2024-07-12. "schema must be a JSON Schema of 'type: \"object\"'":
  ComposioHQ/composio#1829, 2025-08-06. "The 'stream_options' parameter is only allowed when 'stream' is enabled.":
  BerriAI/litellm#5803, 2024-09-20. [S] Tools of different names, for DeepSeek: decolua/9router#3333, 2026-08-15.
- [S] RFC 8259 in UTF-8: finite numbers, no name twice in an object (section 4), no lone surrogates ("no low surrogate
  in string": anomalyco/opencode#13985, 2026-02-17).
"""

import json
import math
import re
from typing import Any

NAME, NAME_RULE = re.compile(r"[a-zA-Z0-9_-]{1,64}"), "name must match ^[a-zA-Z0-9_-]{1,64}$"
SURROGATE = re.compile("[\ud800-\udfff]")
ID_LENGTH, ARRAY_LENGTH = 40, 128
PARTS = {  # role -> the parts that its content may have
    "system": ["text"],
    "developer": ["text"],
    "user": ["text", "image_url", "input_audio", "file"],
    "assistant": ["text", "refusal"],
    "tool": ["text"],
}


def violations(body: bytes) -> list[str]:
    """What is wrong with the body of a request, each as `path: rule`; nothing if it is valid."""
    found = Found()
    try:
        request = parse(body.decode())
    except (ValueError, RecursionError) as error:
        return [f"$: not valid JSON in UTF-8 ({error})"]
    if found.must(isinstance(request, dict), "$", "must be an object"):
        found.plain("$", request)
        found.request(request)
    return found


def history_violations(messages: list[dict]) -> list[str]:
    """The same for the value of `messages` alone."""
    found = Found()
    found.plain("messages", messages)
    found.messages(messages)
    return found


def parse(text: str) -> Any:
    """JSON without doubles; what else Python takes (NaN, lone surrogates) `plain` will find."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) < len(pairs):
            raise ValueError(f"a name stands twice in an object: {[name for name, _ in pairs]}")
        return found

    return json.loads(text, object_pairs_hook=unique)


class Found(list[str]):
    """The violations found so far."""

    def must(self, ok: object, path: str, rule: str) -> bool:
        if not ok:
            self.append(f"{path}: {rule}")
        return bool(ok)

    def array(self, value: Any, path: str, limit: int | None = None) -> list[Any]:
        """The items of an array that may not be empty."""
        if not self.must(isinstance(value, list), path, "must be an array"):
            return []
        self.must(value, path, "empty array, needs an item at least")
        self.must(limit is None or len(value) <= limit, path, f"array too long, {limit} items at most")
        return list(value)

    def name(self, value: Any, path: str) -> None:
        self.must(isinstance(value, str) and NAME.fullmatch(value), path, NAME_RULE)

    def plain(self, path: str, value: Any) -> None:
        """No value that JSON in UTF-8 can not hold."""
        stack = [(path, value)]
        while stack:
            path, value = stack.pop()
            match value:
                case str():
                    self.must(value.isascii() or not SURROGATE.search(value), path, "lone surrogate in a string")
                case float():
                    self.must(math.isfinite(value), path, "number must be finite")
                case list():
                    stack += [(f"{path}[{at}]", item) for at, item in enumerate(value)]
                case dict():
                    self.must(all(isinstance(key, str) for key in value), path, "keys must be strings")
                    stack += [(f"{path} (a key)", key) for key in value if isinstance(key, str) and not key.isascii()]
                    stack += [(f"{path}.{ascii(key)[1:-1]}".removeprefix("$."), item) for key, item in value.items()]
                case _:
                    self.must(isinstance(value, int | None), path, f"{type(value).__name__} is not JSON value")

    def request(self, request: dict[str, Any]) -> None:
        model, stream, options = request.get("model"), request.get("stream"), request.get("stream_options")
        self.must(isinstance(model, str) and model, "model", "must be a non-empty string")
        self.must(isinstance(stream, bool | None), "stream", "must be a boolean")
        self.must(isinstance(options, dict | None), "stream_options", "must be an object")
        self.must(options is None or stream, "stream_options", "only allowed when stream is enabled")
        self.messages(request.get("messages"))
        names: list[Any] = []
        if "tools" in request:
            for at, tool in enumerate(self.array(request["tools"], "tools", ARRAY_LENGTH)):
                self.tool(tool, f"tools[{at}]", names)
        for key in ("tool_choice", "parallel_tool_calls"):
            self.must(key not in request or "tools" in request, key, "only allowed when tools are specified")
        match request.get("tool_choice", "auto"):
            case "none" | "auto" | "required":
                pass
            case {"type": "function", "function": {"name": name}}:
                self.must(name in names or "tools" not in request, "tool_choice.function.name", "not among the tools")
            case _:
                self.must(False, "tool_choice", "must be none, auto, required or a function by its name")

    def tool(self, tool: Any, path: str, names: list[Any]) -> None:
        if not self.must(isinstance(tool, dict), path, "must be an object"):
            return
        self.must(tool.get("type") == "function", f"{path}.type", "must be function")
        function, path = tool.get("function"), f"{path}.function"
        if not self.must(isinstance(function, dict), path, "must be an object"):
            return
        name = function.get("name")
        self.name(name, f"{path}.name")
        self.must(name not in names, f"{path}.name", "names of tools must be unique")
        names.append(name)
        schema, path = function.get("parameters", {"type": "object"}), f"{path}.parameters"
        if self.must(isinstance(schema, dict) and schema.get("type") == "object", path, "must be an object schema"):
            properties, required = schema.get("properties", {}), schema.get("required", [])
            ok = isinstance(properties, dict) and all(isinstance(value, dict | bool) for value in properties.values())
            self.must(ok, f"{path}.properties", "must be an object of schemas")
            ok = isinstance(required, list) and all(isinstance(name, str) for name in required)
            self.must(ok, f"{path}.required", "must be an array of strings")

    def messages(self, messages: Any) -> None:
        seen: set[str] = set()  # ids of calls, in the whole history
        last, calls, answered = "", list[str](), list[str]()  # the last message that is not an answer, and those to it
        for at, message in enumerate(self.array(messages, "messages")):
            path = f"messages[{at}]"
            role = message.get("role") if isinstance(message, dict) else None
            if role == "tool":
                self.answer(message.get("tool_call_id"), path, calls, answered)
            else:
                self.answered(last, calls, answered)
                last, calls, answered = path, [], []
            if self.must(isinstance(message, dict), path, "must be an object"):
                self.message(message, role, path)
            if role == "assistant" and "tool_calls" in message:
                for index, call in enumerate(self.array(message["tool_calls"], f"{path}.tool_calls", ARRAY_LENGTH)):
                    calls += self.call(call, f"{path}.tool_calls[{index}]", seen)
        self.answered(last, calls, answered)

    def answered(self, path: str, calls: list[str], answered: list[str]) -> None:
        missing = [id for id in dict.fromkeys(calls) if id not in answered]
        rule = f"must be followed at once by a tool message for each tool_call_id, there is none for {missing}"
        self.must(not missing, f"{path}.tool_calls", rule)

    def answer(self, id: Any, path: str, calls: list[str], answered: list[str]) -> None:
        if not self.must(calls, path, "tool message without a preceding assistant message with tool_calls"):
            return
        path = f"{path}.tool_call_id"
        if self.must(id in calls, path, f"{id!r} is not among the tool_calls before"):
            self.must(id not in answered, path, f"{id!r} is answered twice")
            late = [other for other in answered if calls.index(other) > calls.index(id)]
            self.must(not late or id in answered, path, f"not in the order of the calls, {late} came before {id!r}")
            answered.append(id)

    def message(self, message: dict[str, Any], role: Any, path: str) -> None:
        if not self.must(isinstance(role, str) and role in PARTS, f"{path}.role", f"must be one of {[*PARTS]}"):
            return
        for key, owner in {"tool_calls": "assistant", "refusal": "assistant", "tool_call_id": "tool"}.items():
            self.must(key not in message or role == owner, f"{path}.{key}", f"only in a message of role {owner}")
        if "name" in message:
            self.name(message["name"], f"{path}.name")
        content, refusal = message.get("content"), message.get("refusal")
        if role == "assistant":
            self.must(isinstance(refusal, str | None), f"{path}.refusal", "must be a string")
            something = refusal or "tool_calls" in message or content not in (None, "")
            self.must(something, path, "assistant message must have content, tool_calls or a refusal")
        text = isinstance(content, str) or (content is None and role == "assistant")
        if self.must(text or isinstance(content, list), f"{path}.content", "must be a string or an array of parts"):
            for at, part in enumerate([] if text else self.array(content, f"{path}.content")):
                self.part(part, PARTS[role], f"{path}.content[{at}]")

    def part(self, part: Any, known: list[str], path: str) -> None:
        type = part.get("type") if isinstance(part, dict) else None
        if not self.must(type in known, f"{path}.type", f"part must be an object of type {known}"):
            return
        match type, part.get(type):
            case ("text" | "refusal", str()) | ("image_url", {"url": str()}):
                pass
            case ("input_audio", {"data": str(), "format": "wav" | "mp3"}):
                pass
            case ("file", {"file_id": str()} | {"file_data": str()}):
                pass
            case _:
                self.must(False, f"{path}.{type}", "part is malformed")

    def call(self, call: Any, path: str, seen: set[str]) -> list[str]:
        """The id that waits for an answer, if there is one."""
        if not self.must(isinstance(call, dict), path, "must be an object"):
            return []
        id, function = call.get("id"), call.get("function")
        self.must(call.get("type") == "function", f"{path}.type", "must be function")
        if self.must(isinstance(id, str) and id, f"{path}.id", "must be a non-empty string"):
            self.must(len(id) <= ID_LENGTH, f"{path}.id", f"string too long, {ID_LENGTH} characters at most")
            self.must(id not in seen, f"{path}.id", f"{id!r} is not unique in the history")
            seen.add(id)
        if self.must(isinstance(function, dict), f"{path}.function", "must be an object"):
            self.name(function.get("name"), f"{path}.function.name")
            self.arguments(function.get("arguments"), f"{path}.function.arguments")
        return [id] if isinstance(id, str) else []

    def arguments(self, arguments: Any, path: str) -> None:
        try:
            value = parse(arguments) if self.must(isinstance(arguments, str), path, "must be a string") else {}
        except (ValueError, RecursionError) as error:
            self.must(False, path, f"not valid JSON ({error})")
        else:
            self.must(isinstance(value, dict), path, "must be a JSON object")
            self.plain(f"{path} (parsed)", value)
