"""What Anthropic's Messages API takes as a request, from its published rules and its own error messages.

Looked up on 2026-11-21 in stored copies; see `tests.validators.body` for what [D], [E] and [S] mean.

- [D] Parameters, blocks and tools with their keys; consecutive messages of one role are one turn; 100,000 messages at
  most; `max_tokens` may be 0; a budget of thinking "≥1024 and less than `max_tokens`": anthropic-sdk-python 2.11.0,
  generated from Anthropic's specification, `types/message_create_params.py`, `*_block_param.py`, `*_source_param.py`,
  `tool_param.py`, `tool_choice_*_param.py`, `thinking_config_*_param.py`, and the same below `types/beta`.
- [D] platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls: results come at once after the calls,
  and first in the content. [E] "`tool_use` ids were found without `tool_result` blocks immediately after: …":
  OpenHands/OpenHands#7512, 2025-03-25; "Messages following tool_use blocks must begin with a matching number of
  tool_result blocks": anthropics/anthropic-sdk-typescript#653, 2025-01-12; "unexpected tool_use_id found in
  tool_result blocks": tghamm/Anthropic.SDK#184, 2026-02-16; "`tool_use` ids must be unique": trycua/cua#524.
  [S] One result for each call: no issue with the API's own words was found.
- [E] "`tool_result` blocks can only be in `user` messages": tghamm/Anthropic.SDK#128, 2025-08-03; "tool_use blocks can
  only be in assistant messages": microsoft/agent-framework#4328. [S] Images and documents are the user's.
- [E] "unexpected `tool_use_id` found in `advisor_tool_result` blocks … must have a corresponding `server_tool_use`
  block before it": anthropics/claude-code#64383, 2026-06-01. Its reverse, "`web_search` tool use with id … was found
  without a corresponding `web_search_tool_result` block" (AnswerDotAI/lisette#108, 2026-02-05), is no rule here,
  since a paused turn ends like this.
- [E] Ids match '^[a-zA-Z0-9_-]+$': HKUDS/nanobot#4356, 2026-06-15; "tools.0.custom.name: String should match pattern
  '^[a-zA-Z0-9_-]{1,128}$'": home-assistant/core#147760, 2025-06-29 ({1,64} in cyanheads/atlas-mcp-server#14,
  2025-03-06). "tools: Tool names must be unique.": tailcallhq/forgecode#892, 2025-06-03. "input_schema does not support
  oneOf, allOf, or anyOf at the top level": anthropics/claude-code#27337, 2026-02-21.
- [E] "text content blocks must be non-empty" anywhere, and "must contain non-whitespace text" where a message has
  nothing else: tried on the API, LibreChat-AI/agents#124, 2026-04-30. "all messages must have non-empty content except
  for the optional final assistant message": glowingjade/obsidian-smart-composer#156, 2024-12-05. "final assistant
  content cannot end with trailing whitespace": forgecode#1872, 2025-11-08. "This model does not support assistant
  message prefill", from 4.6 on: agenticloops-ai/agentic-ai-engineering#43, 2026-03-31.
- [E] "Unexpected role \"system\"": ianarawjo/ChainForge#271, 2024-04-29. Newer models take it inside the history: after
  a message of the user or a server's result, before one of the assistant or as the last, never two in a row [D]:
  platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages, as told in maximhq/bifrost#3945;
  "role 'system' must precede an 'assistant' message or end the array": anthropics/claude-code#73821, 2026-07-03.
- [E] "Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is enabled, a final `assistant`
  message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)":
  n8n-io/n8n#22550, 2025-12-01; "The final block in an assistant message cannot be `thinking`": forgecode#2107,
  2025-12-11; "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`":
  forgecode#1853, 2025-11-07; "Thinking may not be enabled when tool_choice forces tool use.": mastra-ai/mastra#7507,
  2025-09-05. [S] Thinking comes first in its message; at temperature 1 if it is manual.
- [E] "A maximum of 4 blocks with cache_control may be provided. Found 5.": tghamm/Anthropic.SDK#50, 2024-09-26;
  "cache_control cannot be set for empty text blocks": stakpak/agent#511, 2026-02-09; "thinking.cache_control: Extra
  inputs are not permitted": Wei-Shaw/sub2api#225, 2026-01-10.
- [E] "media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'": anthropics/claude-code#8184,
  2025-09-25. "all content must be type 'text' if 'is_error' is true": vellum-ai/vellum-assistant#18387, 2026-03-17.
  "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false":
  veryfront/veryfront-code#3918, 2026-08-21.
- [S] The first message is the user's, as older models and Bedrock ask; a choice of a tool needs tools.
"""

import re
from collections.abc import Iterator
from typing import Any

from tests.validators.body import Body, tag

ID, NAME = re.compile(r"[a-zA-Z0-9_-]+"), re.compile(r"[a-zA-Z0-9_-]{1,128}")
SERVER_TOOL = re.compile(r"[a-z0-9_]+_\d{8}|mcp_toolset")
MODEL = re.compile(r"claude-[a-z]+-(\d+)(?:-(\d{1,2})(?!\d))?")
MESSAGES, BREAKPOINTS, LEAST_BUDGET = 100_000, 4, 1024
IMAGES = ["image/jpeg", "image/png", "image/gif", "image/webp"]
PARAMETERS = [  # all of POST /v1/messages, with those that need a beta header
    *("model", "max_tokens", "messages", "cache_control", "container", "diagnostics", "inference_geo", "metadata"),
    *("output_config", "service_tier", "speed", "stop_sequences", "stream", "system", "temperature", "thinking"),
    *("tool_choice", "tools", "top_k", "top_p", "user_profile_id", "workspace_id"),
    *("betas", "context_management", "fallbacks", "mcp_servers", "output_format"),
]
BLOCKS = {  # block -> the roles in whose messages it may stand; its keys, first those that it must have, after "|"
    "text": ("user assistant system", "text | citations cache_control"),
    "image": ("user", "source | cache_control transformations"),
    "document": ("user", "source | title context citations cache_control"),
    "search_result": ("user", "source title content | citations cache_control"),
    "container_upload": ("user", "file_id | cache_control"),
    "tool_result": ("user", "tool_use_id | content is_error cache_control toolset_name"),
    "tool_use": ("assistant", "id name input | cache_control caller toolset_name"),
    "thinking": ("assistant", "thinking signature |"),
    "redacted_thinking": ("assistant", "data |"),
    "server_tool_use": ("assistant", "id name input | cache_control caller"),
    "mcp_tool_use": ("assistant", "id name input server_name | cache_control"),
    "mcp_tool_result": ("assistant user", "tool_use_id | content is_error cache_control"),
    "compaction": ("assistant", "content | cache_control encrypted_content"),
    "fallback": ("assistant", "from to |"),
    "tool_addition": ("system", "tool | cache_control"),
    "tool_removal": ("system", "tool | cache_control"),
    **dict.fromkeys(
        [
            *("web_search_tool_result", "web_fetch_tool_result", "advisor_tool_result", "tool_search_tool_result"),
            *("code_execution_tool_result", "bash_code_execution_tool_result"),
            "text_editor_code_execution_tool_result",
        ],
        ("assistant", "tool_use_id content | cache_control caller"),
    ),
}
IN_RESULT = ["text", "image", "document", "search_result", "tool_reference", "browser_state"]
THOUGHTS = ("thinking", "redacted_thinking")
ToolUse = tuple[str, dict[str, Any]]  # where a block stands, and the block


def violations(body: Any) -> list[str]:
    """What is wrong with the decoded body of a request, each as `path: rule`; nothing if it is valid."""
    found = Messages()
    found.plain("$", body)
    if found.must(isinstance(body, dict), "$", "must be an object"):
        found.create(body)
    return found


class Messages(Body):
    """The violations found so far, and how many breakpoints of the cache were seen."""

    breakpoints = 0

    def create(self, body: dict[str, Any]) -> None:
        self.keys(body, "$", PARAMETERS)  # [E]
        model = body.get("model")
        self.must(isinstance(model, str) and model, "model", "must be a non-empty string")  # [D]
        self.whole(body.get("max_tokens"), "max_tokens", 0)  # [D]
        self.must(isinstance(body.get("stream"), bool | None), "stream", "must be a boolean")
        for key in ("temperature", "top_p"):
            if body.get(key) is not None:
                self.between(body[key], key, 0, 1)  # [D]
        names = self.toolbox(body.get("tools"))
        self.choice(body.get("tool_choice"), names, body)
        manual = self.thinking(body.get("thinking"), body)
        self.output(body.get("output_config"))
        self.cached(body, "$")
        self.system(body.get("system"))
        messages = self.array(body.get("messages"), "messages", MESSAGES)  # [D]
        self.roles(messages)
        for at, message in enumerate(messages):
            if self.must(isinstance(message, dict), f"messages[{at}]", "must be an object"):
                self.one_message(message, f"messages[{at}]", final=at == len(messages) - 1)
        self.results([*turns(messages)])
        self.last(messages, str(model))
        self.thoughts([*turns(messages)], manual=manual, disabled=tag(body.get("thinking")) in (None, "disabled"))
        rule = f"a maximum of {BREAKPOINTS} blocks with cache_control, found {self.breakpoints}"
        self.must(self.breakpoints <= BREAKPOINTS, "$", rule)  # [E]

    # --------------------------------------------------------------------------------------------------- parameters

    def toolbox(self, tools: Any) -> list[str]:
        names: list[str] = []
        if tools is None or not self.must(isinstance(tools, list), "tools", "must be an array"):
            return names
        for at, tool in enumerate(tools):
            path = f"tools[{at}]"
            if not self.must(isinstance(tool, dict), path, "must be an object"):
                continue
            kind, name = tool.get("type"), tool.get("name")
            self.cached(tool, path)
            if kind in (None, "custom"):
                ok = isinstance(name, str) and NAME.fullmatch(name)
                self.must(ok, f"{path}.name", f"must match ^{NAME.pattern}$")  # [E]
                schema = tool.get("input_schema")
                self.object_schema(schema, f"{path}.input_schema")  # [D]
                top = [key for key in ("oneOf", "allOf", "anyOf") if isinstance(schema, dict) and key in schema]
                self.must(not top, f"{path}.input_schema", f"no {top} at the top level")  # [E]
                if tool.get("strict") is True:
                    self.closed(schema, f"{path}.input_schema", all_required=False)  # [D]
            else:
                known = isinstance(kind, str) and SERVER_TOOL.fullmatch(kind)
                self.must(known, f"{path}.type", "must be custom, or a tool of Anthropic with its date")  # [D]
            if isinstance(name, str):
                self.must(name not in names, f"{path}.name", "tool names must be unique")  # [E]
                names.append(name)
        return names

    def choice(self, choice: Any, names: list[str], body: dict[str, Any]) -> None:
        if choice is None:
            return
        self.must(body.get("tools"), "tool_choice", "only with tools")  # [S]
        if self.one_of(tag(choice), "tool_choice.type", ["auto", "any", "tool", "none"]):  # [D]
            self.keys(choice, "tool_choice", ["type", "name", "disable_parallel_tool_use"])  # [E]
            named = tag(choice) != "tool" or choice.get("name") in names
            self.must(named, "tool_choice.name", "not among the tools")  # [S]
            forced = tag(choice) in ("any", "tool") and tag(body.get("thinking")) == "enabled"
            self.must(not forced, "tool_choice.type", "thinking may not be enabled when tool use is forced")  # [E]

    def thinking(self, thinking: Any, body: dict[str, Any]) -> bool:
        """Whether it is enabled by hand, so that the history must hold it."""
        if thinking is None:
            return False
        if not self.one_of(tag(thinking), "thinking.type", ["enabled", "disabled", "adaptive", "between_tools"]):  # [D]
            return False
        if tag(thinking) == "enabled":
            most, budget = body.get("max_tokens"), thinking.get("budget_tokens")
            if self.whole(budget, "thinking.budget_tokens", LEAST_BUDGET) and isinstance(most, int):  # [D]
                self.must(budget < most, "thinking.budget_tokens", "must be less than max_tokens")  # [D]
            self.must(body.get("temperature") in (None, 1), "temperature", "must be 1 with thinking")  # [S]
        return tag(thinking) == "enabled"

    def output(self, config: Any) -> None:
        """[D], and the closed schema [E]."""
        if self.must(isinstance(config, dict | None), "output_config", "must be an object") and config:
            format, path = config.get("format"), "output_config.format"
            if format is not None and self.one_of(tag(format), f"{path}.type", ["json_schema"]):
                self.must(isinstance(format.get("schema"), dict), f"{path}.schema", "must be an object")
                self.closed(format.get("schema"), f"{path}.schema", all_required=False)

    def system(self, system: Any) -> None:
        if system is None or isinstance(system, str):
            return
        if self.must(isinstance(system, list), "system", "must be a string or an array of text blocks"):
            for at, block in enumerate(system):
                if self.one_of(tag(block), f"system[{at}].type", ["text"]):  # [D]
                    self.block(block, f"system[{at}]", "system")

    # ----------------------------------------------------------------------------------------------------- messages

    def roles(self, messages: list[Any]) -> None:
        roles = [tag(message, "role") for message in messages]
        for at, role in enumerate(roles):
            path, before, after = f"messages[{at}].role", roles[at - 1] if at else None, roles[at + 1 : at + 2]
            if self.one_of(role, path, ["user", "assistant", "system"]) and role == "system" and at:  # [E]
                server = before == "assistant" and ended_by_server(messages[at - 1])
                self.must(before == "user" or server, path, "system must follow a message of the user")  # [D]
                self.must(after in ([], ["assistant"]), path, "system must precede the assistant or be the last")  # [E]
        if roles and roles[0] in ("assistant", "system"):
            self.must(False, "messages[0].role", "the first message must be of the user")  # [S]

    def one_message(self, message: dict[str, Any], path: str, *, final: bool) -> None:
        role = tag(message, "role")
        content: Any = message.get("content")
        self.keys(
            message, path, ["role", "content", *(["clear_at", "output_config"] if role == "system" else [])]
        )  # [E]
        optional = final and role == "assistant"
        if isinstance(content, str):
            self.must(content or optional, f"{path}.content", "must not be empty")  # [E]
            self.must(content.strip() or not content, f"{path}.content", "must not be blank")  # [E]
        elif self.must(isinstance(content, list), f"{path}.content", "must be a string or an array of blocks"):  # [D]
            self.must(content or optional, f"{path}.content", "must not be empty")  # [E]
            texts = [block.get("text") for block in content if tag(block) == "text"]
            blank = len(texts) == len(content) > 0 and all(isinstance(text, str) and not text.strip() for text in texts)
            self.must(not blank or "" in texts, f"{path}.content", "must not be blank")  # [E]
            for at, block in enumerate(content):
                if self.one_of(tag(block), f"{path}.content[{at}].type", [*BLOCKS]):  # [D]
                    self.block(block, f"{path}.content[{at}]", role or "")
            self.server_calls(content, path)

    def block(self, block: dict[str, Any], path: str, role: str) -> None:
        """A block whose type is known."""
        roles, keys = BLOCKS[block["type"]]
        required, _, optional = keys.partition("|")
        self.must(role in roles.split() or not role, path, f"{block['type']} only in a message of {roles}")  # [E]
        self.keys(block, path, ["type", *required.split(), *optional.split()])  # [E]
        missing = [key for key in required.split() if block.get(key) is None]
        for key in missing:
            self.must(key == "content", f"{path}.{key}", "missing")  # [D]; what a server left out may be null
        self.cached(block, path)
        if not missing:
            self.filled(block, path)

    def filled(self, block: dict[str, Any], path: str) -> None:
        """A block that has what it must have."""
        match block["type"]:
            case "text":
                if self.text(block["text"], f"{path}.text"):
                    self.must(block["text"], f"{path}.text", "must not be empty")  # [E]
            case "image":
                self.source(block["source"], f"{path}.source", IMAGES)
            case "document":
                self.source(block["source"], f"{path}.source", ["application/pdf"])
            case "tool_use" | "server_tool_use" | "mcp_tool_use":
                ok = isinstance(block["id"], str) and ID.fullmatch(block["id"])
                self.must(ok, f"{path}.id", f"must match ^{ID.pattern}$")  # [E]
                ok = isinstance(block["name"], str) and NAME.fullmatch(block["name"])
                self.must(ok, f"{path}.name", f"must match ^{NAME.pattern}$")  # [E]
                self.must(isinstance(block["input"], dict), f"{path}.input", "must be an object")  # [D]
            case "tool_result":
                self.result(block, path)
            case "thinking":
                self.text(block["thinking"], f"{path}.thinking")  # [D] may be empty
                self.text(block["signature"], f"{path}.signature", blank=False)  # [D]
            case "redacted_thinking":
                self.text(block["data"], f"{path}.data", blank=False)  # [D]
            case "search_result":
                for at, each in enumerate(self.array(block["content"], f"{path}.content")):
                    if self.one_of(tag(each), f"{path}.content[{at}].type", ["text"]):  # [D]
                        self.block(each, f"{path}.content[{at}]", "")

    def source(self, source: Any, path: str, media: list[str]) -> None:
        """[D], and the media types of images [E]."""
        document = media != IMAGES
        known = ["base64", "url", "file", *(["text", "content"] if document else [])]
        if self.one_of(tag(source), f"{path}.type", known):
            match source:
                case {"type": "base64", "media_type": type, "data": data}:
                    self.one_of(type, f"{path}.media_type", media)
                    self.base64(data, f"{path}.data")
                case {"type": "url", "url": str(url)}:
                    self.must(url.startswith(("http://", "https://")), f"{path}.url", "must be a URL with http(s)")
                case {"type": "file", "file_id": str()} | {"type": "content", "content": str() | list()}:
                    pass
                case {"type": "text", "media_type": "text/plain", "data": str()}:
                    pass
                case _:
                    self.must(False, path, "source is malformed")

    def result(self, block: dict[str, Any], path: str) -> None:
        content, failed = block.get("content"), block.get("is_error")
        self.must(isinstance(failed, bool | None), f"{path}.is_error", "must be a boolean")  # [D]
        if content is None or isinstance(content, str):
            return  # [D] may be empty
        if self.must(isinstance(content, list), f"{path}.content", "must be a string or an array of blocks"):  # [D]
            for at, each in enumerate(content):
                inner = f"{path}.content[{at}]"
                if self.one_of(tag(each), f"{inner}.type", ["text"] if failed is True else IN_RESULT):  # [D], [E]
                    if tag(each) in BLOCKS:
                        self.block(each, inner, "")
                    else:
                        self.cached(each, inner)

    def cached(self, holder: dict[str, Any], path: str) -> None:
        control = holder.get("cache_control")
        if control is not None:
            self.breakpoints += 1
            at = f"{path}.cache_control".removeprefix("$.")
            if self.one_of(tag(control), f"{at}.type", ["ephemeral"]):  # [D]
                self.one_of(control.get("ttl", "5m"), f"{at}.ttl", ["5m", "1h"])  # [D]

    # ------------------------------------------------------------------------------------------------------- history

    def server_calls(self, content: list[Any], path: str) -> None:
        """A result of a server's tool comes after its call, in the same message."""
        seen: list[Any] = []
        for at, block in enumerate(content):
            kind = tag(block) or ""
            if kind in ("server_tool_use", "mcp_tool_use"):
                seen.append(block.get("id"))
            elif kind in BLOCKS and kind.endswith("_tool_result"):
                id = block.get("tool_use_id")
                self.must(id in seen, f"{path}.content[{at}].tool_use_id", f"no call {id!r} before it")  # [E]

    def results(self, history: list[tuple[str, list[ToolUse]]]) -> None:
        used: list[Any] = []
        calls: list[ToolUse] = []  # of the turn before
        for role, blocks in history:
            ids = [call.get("id") for _, call in calls]
            answers = [(path, block) for path, block in blocks if tag(block) == "tool_result" and role == "user"]
            given = [block.get("tool_use_id") for _, block in answers]
            for path, call in calls:
                rule = f"no tool_result for {call.get('id')!r} at once in the next message"
                self.must(call.get("id") in given, path, rule)  # [E]
            for at, (path, block) in enumerate(answers):
                known = given[at] in ids
                rule = f"{given[at]!r} is not a tool_use of the message before"
                self.must(known, f"{path}.tool_use_id", rule)  # [E]
                self.must(given[at] not in given[:at], f"{path}.tool_use_id", f"{given[at]!r} has two results")  # [S]
                first = all(tag(each) == "tool_result" for _, each in blocks[: blocks.index((path, block))])
                self.must(first or not known, path, "tool_result blocks must come first")  # [D]
            calls = [(path, block) for path, block in blocks if tag(block) == "tool_use" and role == "assistant"]
            for path, call in calls:
                id = call.get("id")
                self.must(id not in used, f"{path}.id", f"tool_use ids must be unique, {id!r} is not")  # [E]
                used.append(id)
        for path, call in calls:
            self.must(False, path, f"no tool_result for {call.get('id')!r} at once in the next message")  # [E]

    def last(self, messages: list[Any], model: str) -> None:
        """What the model shall go on with, if the last message is the assistant's."""
        message = messages[-1] if messages else None
        if tag(message, "role") != "assistant" or not isinstance(message, dict):
            return
        content, path = message.get("content"), f"messages[{len(messages) - 1}]"
        block = content[-1] if isinstance(content, list) and content else None
        text = content if isinstance(content, str) else tag(block, "text") if tag(block) == "text" else ""
        rule = "the final text of the assistant must not end in white space"
        self.must(text == (text or "").rstrip() or not (text or "").strip(), f"{path}.content", rule)  # [E]
        version = MODEL.match(model)
        newer = version and (int(version[1]), int(version[2] or 0)) >= (4, 6)
        prefill = (isinstance(content, str) and content) or tag(block) == "text"
        self.must(not (newer and prefill), path, "this model takes no prefill, the user must have the last word")  # [E]

    def thoughts(self, history: list[tuple[str, list[ToolUse]]], *, manual: bool, disabled: bool) -> None:
        for at, (role, blocks) in enumerate(history):
            kinds = [tag(block) for _, block in blocks]
            if role != "assistant" or not kinds:
                continue
            rule = "the final block in an assistant message cannot be thinking"
            self.must(kinds[-1] not in THOUGHTS, blocks[-1][0], rule)  # [E]
            late = not {*kinds}.isdisjoint(THOUGHTS) and kinds[0] not in THOUGHTS
            self.must(not late, blocks[0][0], "thinking must come first in its message")  # [S]
            open = disabled and at == len(history) - 1 and not {*kinds}.isdisjoint(THOUGHTS)
            self.must(not open, blocks[0][0], "no thinking in the final message when it is disabled")  # [E]
        asked = [at for at, (role, blocks) in enumerate(history) if role == "user" and not answers(blocks)]
        running = history[asked[-1] + 1 :] if asked else history
        opening = [blocks[0] for role, blocks in running if role == "assistant" and blocks][:1]
        for path, block in opening if manual else []:
            rule = "with thinking enabled, the turn that goes on must start with a thinking block"
            self.must(tag(block) in THOUGHTS, path, rule)  # [E]


def turns(messages: list[Any]) -> Iterator[tuple[str, list[ToolUse]]]:
    """The turns of user and assistant: consecutive messages of one role are one turn [D]; a string is a text block.

    A message with role system stands between turns and ends none.
    """
    before, blocks = "", list[ToolUse]()
    for at, message in enumerate(messages):
        role = tag(message, "role")
        if not isinstance(message, dict) or role not in ("user", "assistant"):
            continue
        if role != before and before:
            yield before, blocks
            blocks = []
        before, content = role, message.get("content")
        blocks = blocks + [
            (f"messages[{at}].content[{index}]", block)
            for index, block in enumerate(content if isinstance(content, list) else [{"type": "text", "text": content}])
            if isinstance(block, dict)
        ]
    if before:
        yield before, blocks


def answers(blocks: list[ToolUse]) -> bool:
    return any(tag(block) == "tool_result" for _, block in blocks)


def ended_by_server(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    kind = tag(content[-1]) if isinstance(content, list) and content else None
    return kind == "server_tool_use" or (kind or "").endswith("_tool_result")
