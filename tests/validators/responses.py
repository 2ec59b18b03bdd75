"""What OpenAI's Responses API takes as a request, from its published rules and its own error messages.

Looked up on 2026-11-21 in stored copies; see `tests.validators.body` for what [D], [E] and [S] mean.

- [D] Parameters, items, parts and tools with their keys: openai-python 3.52.0, generated from OpenAI's specification,
  `types/responses/response_create_params.py`, `response_input_item_param.py`, `easy_input_message_param.py`,
  `response_*_param.py`, `function_tool_param.py`, `response_format_text_json_schema_config_param.py`.
- [E] "Unknown parameter: 'input[1].status'" of a reasoning item: BerriAI/litellm#13420, 2025-08-08, and
  1jehuang/jcode#1028, 2026-08-21; 'input[2].parsed_arguments': openai/openai-python#3146, 2026-04-29.
- [E] "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and 'user'.":
  Chevey339/kelivo#281, 2026-01-24. "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.":
  jeremychone/rust-genai#119, 2026-01-17.
- [E] "No tool call found for function call output with call_id …": continuedev/continue#10092, 2026-02-01. "No tool
  output found for function call …": lace-ai/gai#49, 2026-07-25; "… for custom tool call …":
  diegosouzapw/OmniRoute#8946, 2026-07-30. The API does not ask that the answer comes next, only that there is one.
- [E] "Item 'rs_…' of type 'reasoning' was provided without its required following item.": continuedev/continue#8933,
  2025-11-28; the pairs in general: openai/openai-openapi#536, 2026-03-24. Its reverse, "'msg_…' was provided without
  its required 'reasoning' item: 'rs_…'", no body shows: only the API knows which item came with which.
- [E] "Input[N] missing required field `summary`": newo-ether/Agora#141, 2026-09-21. Encrypted reasoning without the id
  of its item is refused: dotnet/extensions#7629, 2026-07-15. "Item with id 'rs_…' not found. Items are not persisted
  when `store` is set to false.": vercel/ai#7543, 2025-07-25.
- [E] "Duplicate item found with id …": OpenRouterTeam/ai-sdk-provider#254, 2025-11-26. "Expected an ID that begins
  with 'fc'": nodetool-ai/nodetool#4252, 2026-07-13; with "msg_": UKGovernmentBEIS/inspect_ai#1545, 2025-03-25.
  "Expected an ID that contains letters, numbers, underscores, or dashes": earendil-works/pi#977, 2026-01-27. "Invalid
  'input[2].id': string too long. Expected a string with maximum length 64": can1357/oh-my-pi#284, 2026-03-04; of
  `call_id`: AnswerDotAI/fastllm#45, 2026-06-08; "Invalid 'input[4].call_id': empty string": BigPizzaV3/
  CodexPlusPlus#315, 2026-05-25. [S] Ids of reasoning begin with "rs"; a call id is used and answered once, as in the
  other validators.
- [E] "Invalid 'input[222].name': string does not match pattern. Expected … '^[a-zA-Z0-9_-]+$'": NousResearch/
  hermes-agent#31666, 2026-05-24. [S] At most 64 characters, as documented for the name of a format.
- [S] Arguments parse as a JSON object; an answer to a function names its call, though the key may be left out [D].
- [E] "… Expected a base64-encoded data URL with an image MIME type …, but got empty base64-encoded bytes.":
  anomalyco/opencode#23983, 2026-04-23; "… without the 'data:' prefix": Alibaba-NLP/OmniSearch#3, 2025-02-05.
- [E] Missing 'text.format.name': jamesrochabrun/SwiftOpenAI#151, 2025-06-19. "… 'additionalProperties' is required to
  be supplied and to be false": moeru-ai/xsai#202, 2025-07-31; "'required' is required to be supplied and to be an array
  including every key in properties": SamSaffron/term-llm#180, 2026-03-19. "schema must be a JSON Schema of 'type:
  \"object\"'": ComposioHQ/composio#1829, 2025-08-06. "Invalid 'max_output_tokens': integer below minimum value.
  Expected a value >= 16": vectorize-io/hindsight#58, 2025-12-19.
- [S] Some input, or something that it can be taken from; tools of different names; a named choice is among the tools.
"""

import re
from collections.abc import Iterator
from typing import Any

from tests.validators.body import Body, tag

ID, ID_LENGTH, LEAST_OUTPUT = re.compile(r"[a-zA-Z0-9_-]+"), 64, 16
STATUS = ["in_progress", "completed", "incomplete"]
TEXT_PARTS, INPUT_PARTS = ["output_text", "refusal"], ["input_text", "input_image", "input_file"]
ITEMS = {  # type of item -> the keys that it must have; those that it may have, besides id and type
    "message": ("role content", "status phase"),
    "reasoning": ("id summary", "content encrypted_content"),
    "function_call": ("call_id name arguments", "status namespace caller async"),
    "function_call_output": ("call_id output", "status namespace caller name"),
    "custom_tool_call": ("call_id name input", "status namespace caller async"),
    "custom_tool_call_output": ("call_id output", "caller"),
    "tool_search_call": ("arguments", "call_id execution status"),
    "tool_search_output": ("tools", "call_id execution status"),
    "additional_tools": ("role tools", ""),
    "configuration_update": ("", "reasoning text"),
    "compaction": ("encrypted_content", ""),
    "compaction_trigger": ("", ""),
    "item_reference": ("id", ""),
    "file_search_call": ("id queries status", "results"),
    "web_search_call": ("id action status", ""),
    "code_interpreter_call": ("id code container_id outputs status", ""),
    "image_generation_call": (
        "id result status",
        "action background error output_format quality revised_prompt size svg_usage",
    ),
    "computer_call": ("id call_id pending_safety_checks status", "action actions"),
    "computer_call_output": ("call_id output", "acknowledged_safety_checks status"),
    "local_shell_call": ("id call_id action status", ""),
    "local_shell_call_output": ("id output", "status"),
    "shell_call": ("call_id action", "caller environment status"),
    "shell_call_output": ("call_id output", "caller max_output_length status"),
    "apply_patch_call": ("call_id operation status", "caller"),
    "apply_patch_call_output": ("call_id status", "caller output"),
    "mcp_list_tools": ("id server_label tools", "error"),
    "mcp_approval_request": ("id arguments name server_label", ""),
    "mcp_approval_response": ("approval_request_id approve", "reason"),
    "mcp_call": ("id arguments name server_label", "approval_request_id error output status"),
    "program": ("id call_id code fingerprint", ""),
    "program_output": ("id call_id result status", ""),
}
ANSWERED = ("function_call", "custom_tool_call", "shell_call", "apply_patch_call", "computer_call")
FROM_CLIENT = ("additional_tools", "configuration_update", "compaction_trigger", "mcp_approval_response")
PREFIX = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
PARAMETERS = [  # all of POST /v1/responses
    *("access_programs", "background", "context_management", "conversation", "image", "include", "input"),
    *("instructions", "max_output_tokens", "max_tool_calls", "metadata", "model", "moderation"),
    *("parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options"),
    *("prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream", "stream_options"),
    *("temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"),
]
INCLUDE = [
    *("file_search_call.results", "web_search_call.results", "web_search_call.action.sources"),
    *("message.input_image.image_url", "computer_call_output.output.image_url", "code_interpreter_call.outputs"),
    *("reasoning.encrypted_content", "message.output_text.logprobs"),
]
SERVERS = [  # tools that run at the provider, or that it knows how to call
    *("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11", "file_search"),
    *("computer", "computer_use_preview", "image_generation", "code_interpreter", "local_shell", "shell"),
    *("apply_patch", "tool_search", "programmatic_tool_calling"),
]
TOOLS = {  # type of tool -> the keys that it must have
    **dict.fromkeys(SERVERS, ""),
    "function": "name",
    "custom": "name",
    "namespace": "name tools",
    "mcp": "server_label",
    "file_search": "vector_store_ids",
    "code_interpreter": "container",
}
FUNCTION_KEYS = [
    *("type", "name", "parameters", "strict", "description", "defer_loading"),
    *("allowed_callers", "output_schema", "async"),
]


def violations(body: Any) -> list[str]:
    """What is wrong with the decoded body of a request, each as `path: rule`; nothing if it is valid."""
    found = Responses()
    found.plain("$", body)
    if found.must(isinstance(body, dict), "$", "must be an object"):
        found.create(body)
    return found


class Responses(Body):
    """The violations found so far."""

    def create(self, body: dict[str, Any]) -> None:
        self.keys(body, "$", PARAMETERS)  # [E]
        self.settings(body)  # [D]
        names = self.tools(body["tools"], "tools", [*TOOLS]) if body.get("tools") is not None else []
        self.choice(body.get("tool_choice"), names)
        if body.get("text") is not None and self.must(isinstance(body["text"], dict), "text", "must be an object"):
            self.format(body["text"].get("format", {"type": "text"}), "text.format")
        elsewhere = [key for key in ("previous_response_id", "conversation", "prompt") if body.get(key) is not None]
        both = "previous_response_id" in elsewhere and "conversation" in elsewhere
        self.must(not both, "conversation", "not together with previous_response_id")  # [D]
        if "input" not in body:
            self.must(elsewhere, "input", "must be there, or an earlier response, a conversation or a prompt")  # [S]
        elif not isinstance(body["input"], str) and not (elsewhere and body["input"] == []):
            history = self.array(body["input"], "input")  # [S] not empty
            self.items(history, stored=body.get("store") is not False, complete=not elsewhere)

    def settings(self, body: dict[str, Any]) -> None:
        """[D], and the least of `max_output_tokens` [E]."""
        model = body.get("model")
        self.must((isinstance(model, str) and model) or body.get("prompt"), "model", "must be a non-empty string")
        for key in ("stream", "store", "background", "parallel_tool_calls"):
            self.must(isinstance(body.get(key), bool | None), key, "must be a boolean")
        for key in ("instructions", "previous_response_id"):
            self.must(isinstance(body.get(key), str | None), key, "must be a string")
        self.must(body.get("stream_options") is None or body.get("stream"), "stream_options", "only with stream")
        if body.get("max_output_tokens") is not None:
            self.whole(body["max_output_tokens"], "max_output_tokens", LEAST_OUTPUT)
        for key, most in {"temperature": 2, "top_p": 1, "top_logprobs": 20}.items():
            if body.get(key) is not None:
                self.between(body[key], key, 0, most)
        include, metadata = body.get("include"), body.get("metadata")
        if self.must(isinstance(include, list | None), "include", "must be an array"):
            for at, each in enumerate(include or []):
                self.one_of(each, f"include[{at}]", INCLUDE)
        if self.must(isinstance(metadata, dict | None), "metadata", "must be an object"):
            pairs = (metadata or {}).items()
            short = all(isinstance(value, str) and len(key) <= 64 and len(value) <= 512 for key, value in pairs)
            self.must(len(pairs) <= 16 and short, "metadata", "must be 16 pairs at most, of 64 and 512 characters")

    # ---------------------------------------------------------------------------------------------- tools and format

    def tools(self, tools: Any, path: str, known: list[str]) -> list[str]:
        """The names of the functions and custom tools. The array may be empty (recorded)."""
        names: list[str] = []
        if self.must(isinstance(tools, list), path, "must be an array"):
            for at, tool in enumerate(tools):
                names += self.one_tool(tool, f"{path}[{at}]", known)
            self.must(len({*names}) == len(names), path, "names of tools must be unique")  # [S]
        return names

    def one_tool(self, tool: Any, path: str, known: list[str]) -> list[str]:
        kind = tag(tool)
        if not self.one_of(kind, f"{path}.type", known):  # [D]
            return []
        for key in TOOLS[str(kind)].split():
            self.must(key in tool, f"{path}.{key}", "missing")  # [D]
        name = tool.get("name")
        if kind == "namespace":
            return self.tools(tool.get("tools"), f"{path}.tools", ["function", "custom"])  # [D]
        if kind not in ("function", "custom") or "name" not in tool:
            return []
        self.name(name, f"{path}.name")  # [E]
        if kind == "function":
            self.keys(tool, path, FUNCTION_KEYS)  # [E] above all no `function` inside, as in Chat Completions
            self.must(isinstance(tool.get("description"), str | None), f"{path}.description", "must be a string")
            self.schema(tool.get("parameters"), tool.get("strict"), f"{path}.parameters", f"{path}.strict")
        return [name] if isinstance(name, str) else []

    def schema(self, schema: Any, strict: Any, path: str, strict_path: str) -> None:
        self.must(isinstance(strict, bool | None), strict_path, "must be a boolean")  # [D]
        if schema is not None:
            self.object_schema(schema, path)  # [E]
            if strict is True:
                self.closed(schema, path, all_required=True)  # [E]

    def choice(self, choice: Any, names: list[str]) -> None:
        """[D] The forms of a choice; [S] a named one is among the tools."""
        match choice:
            case None | "none" | "auto" | "required" | {"type": "mcp", "server_label": str()}:
                pass
            case {"type": "function" | "custom", "name": str(name)}:
                self.must(name in names, "tool_choice.name", "not among the tools")
            case {"type": "allowed_tools", "mode": "auto" | "required", "tools": list(allowed)}:
                for at, each in enumerate(allowed):
                    known = tag(each) not in ("function", "custom") or tag(each, "name") in names
                    self.must(tag(each) and known, f"tool_choice.tools[{at}]", "not among the tools")
            case {"type": str(hosted)} if hosted in SERVERS:
                pass
            case _:
                self.must(False, "tool_choice", "must be none, auto, required, or an object that names tools")

    def format(self, format: Any, path: str) -> None:
        known = self.one_of(tag(format), f"{path}.type", ["text", "json_object", "json_schema"])  # [D]
        if known and tag(format) == "json_schema":
            self.keys(format, path, ["type", "name", "schema", "strict", "description"])  # [E]
            self.name(format.get("name"), f"{path}.name")  # [E] missing, [D] pattern
            self.must(isinstance(format.get("schema"), dict), f"{path}.schema", "must be an object")  # [D]
            self.schema(format.get("schema"), format.get("strict"), f"{path}.schema", f"{path}.strict")

    # ------------------------------------------------------------------------------------------------------- history

    def items(self, items: list[Any], *, stored: bool, complete: bool) -> None:
        """The items of `input`; where they are not the complete history, some calls stand elsewhere."""
        ids: list[Any] = []
        calls: dict[tuple[str, Any], str] = {}  # (type, id) of each call that a client answers -> where it stands
        answered: list[tuple[str, Any]] = []
        complete = complete and all(kind != "item_reference" for kind, _ in typed(items))
        for at, (kind, item) in enumerate(typed(items)):
            path = f"input[{at}]"
            if not self.must(isinstance(item, dict), path, "must be an object"):
                continue
            if not self.one_of(kind, f"{path}.type", [*ITEMS]):  # [D]
                continue
            self.item(item, str(kind), path, ids)
            self.must(stored or kind != "item_reference", path, "not found, as items are not stored")  # [E]
            if kind == "reasoning":
                self.reasoning(item, path, stored=stored)
                self.must(follows(items[at + 1 :]), path, "must be followed by the item that it belongs to")  # [E]
            self.must(kind != "compaction_trigger" or at == len(items) - 1, path, "must be the last item")  # [D]
            key = (str(kind).removesuffix("_output"), item.get("call_id"))
            if kind in ANSWERED and isinstance(key[1], str):
                self.must(key not in calls, f"{path}.call_id", f"{key[1]!r} is used by an earlier call")  # [S]
                calls[key] = path
            elif str(kind).endswith("_output") and key[0] in ANSWERED and isinstance(key[1], str):
                rule = f"no {key[0]} before has the id {key[1]!r}"
                self.must(key in calls or not complete, f"{path}.call_id", rule)  # [E]
                self.must(key not in answered, f"{path}.call_id", f"{key[1]!r} is answered twice")  # [S]
                answered.append(key)
        for key, path in calls.items():
            self.must(key in answered, path, f"no {key[0]}_output for the call {key[1]!r}")  # [E]

    def item(self, item: dict[str, Any], kind: str, path: str, ids: list[Any]) -> None:
        required, optional = (words.split() for words in ITEMS[kind])
        self.keys(item, path, ["type", "id", *required, *optional])  # [E]
        for key in required:
            self.must(
                item.get(key) is not None or key in ("code", "outputs", "result"), f"{path}.{key}", "missing"
            )  # [D]
        if item.get("id") is not None:
            self.id(item["id"], f"{path}.id", PREFIX.get(kind, ""))
            self.must(item["id"] not in ids, f"{path}.id", f"duplicate item {item['id']!r}")  # [E]
            ids.append(item["id"])
        if item.get("call_id") is not None:
            self.id(item["call_id"], f"{path}.call_id", "")  # [E]
        if kind in ("message", "function_call", "function_call_output") and item.get("status") is not None:
            self.one_of(item["status"], f"{path}.status", STATUS)  # [D]; null is taken (recorded)
        if kind == "message":
            self.said(item, path)
        elif kind in ("function_call", "custom_tool_call"):
            if item.get("name") is not None:
                self.name(item["name"], f"{path}.name")  # [E]
            if kind == "function_call" and item.get("arguments") is not None:
                self.arguments(item["arguments"], f"{path}.arguments")  # [D] a string, [S] of an object
            elif kind == "custom_tool_call" and item.get("input") is not None:
                self.text(item["input"], f"{path}.input")  # [D]
        elif kind in ("function_call_output", "custom_tool_call_output") and item.get("output") is not None:
            self.parts(item["output"], f"{path}.output", INPUT_PARTS)  # [D]
        elif kind in ("additional_tools", "tool_search_output") and item.get("tools") is not None:
            self.tools(item["tools"], f"{path}.tools", [*TOOLS])  # [D]

    def id(self, id: Any, path: str, prefix: str) -> None:
        """[E]"""
        if self.must(isinstance(id, str) and id, path, "must be a non-empty string"):
            self.must(len(id) <= ID_LENGTH, path, f"string too long, {ID_LENGTH} characters at most")
            self.must(ID.fullmatch(id), path, "must be letters, numbers, underscores and dashes")
            self.must(id.startswith(prefix), path, f"must begin with {prefix!r}")

    def said(self, message: dict[str, Any], path: str) -> None:
        role, content = message.get("role"), message.get("content")
        if role is not None and self.one_of(role, f"{path}.role", ["user", "assistant", "system", "developer"]):  # [E]
            self.must(
                message.get("phase") is None or role == "assistant", f"{path}.phase", "only of an assistant"
            )  # [D]
            if content is not None:
                self.parts(content, f"{path}.content", TEXT_PARTS if role == "assistant" else INPUT_PARTS)  # [E]
        if message.get("phase") is not None:
            self.one_of(message["phase"], f"{path}.phase", ["commentary", "final_answer"])  # [D]

    def parts(self, content: Any, path: str, known: list[str]) -> None:
        if isinstance(content, str):
            return
        if self.must(isinstance(content, list), path, "must be a string or an array of parts"):
            for at, part in enumerate(self.array(content, path)):  # [S] not empty
                if self.one_of(tag(part), f"{path}[{at}].type", known):
                    self.piece(part, f"{path}[{at}]")

    def piece(self, part: dict[str, Any], path: str) -> None:
        """[D], and the form of data [E]."""
        match part:
            case {"type": "input_text" | "output_text", "text": str()} | {"type": "refusal", "refusal": str()}:
                pass
            case {"type": "input_image", "image_url": str(url)}:
                self.data_url(url, f"{path}.image_url", "image/")
            case {"type": "input_file", "file_data": str(data)}:
                if self.must(data.startswith("data:"), f"{path}.file_data", "must be a data URL"):
                    self.data_url(data, f"{path}.file_data", "")
            case {"type": "input_image" | "input_file", "file_id": str()} | {"type": "input_file", "file_url": str()}:
                pass
            case _:
                self.must(False, f"{path}.{part['type'].split('_')[-1]}", "part is malformed")
        if part.get("type") == "input_image" and part.get("detail") is not None:
            self.one_of(part["detail"], f"{path}.detail", ["auto", "low", "high", "original"])

    def reasoning(self, item: dict[str, Any], path: str, *, stored: bool) -> None:
        encrypted = item.get("encrypted_content")
        for key, kind in {"summary": "summary_text", "content": "reasoning_text"}.items():
            if item.get(key) is not None and self.must(
                isinstance(item[key], list), f"{path}.{key}", "must be an array"
            ):
                for at, each in enumerate(item[key]):
                    ok = tag(each) == kind and isinstance(each.get("text"), str)
                    self.must(ok, f"{path}.{key}[{at}]", f"must be an object of type {kind} with a text")  # [D]
        if self.must(isinstance(encrypted, str | None), f"{path}.encrypted_content", "must be a string"):  # [D]
            rule = "must be there, as items are not stored"
            self.must(stored or encrypted, f"{path}.encrypted_content", rule)  # [E]


def typed(items: list[Any]) -> Iterator[tuple[str | None, Any]]:
    """Each item with its type; without one it is a message, or a reference if it has nothing but an id. [D]"""
    for item in items:
        kind = tag(item)
        if isinstance(item, dict) and item.get("type") is None:
            kind = "message" if "role" in item else "item_reference" if "id" in item else None
        yield kind, item


def follows(rest: list[Any]) -> bool:
    """What comes after reasoning, and after more of it (recorded), is something that the model wrote."""
    for kind, item in typed(rest):
        if kind != "reasoning":
            by_client = kind in FROM_CLIENT or (kind or "").endswith("_output")
            return item.get("role") == "assistant" if kind == "message" else not by_client
    return False
