"""What Google's `generateContent` takes as a request, from its published rules and its own error messages.

Looked up on 2026-11-21 in stored copies; see `tests.validators.body` for what [D], [E] and [S] mean. The model stands
in the URL, so it is a parameter here; without it, the rules of one generation are left out.

- [D] Fields of contents, parts, tools, schemas and configurations: python-genai 3.4.0, `types.py`, and googleapis
  `google/ai/generativelanguage/v1beta/content.proto` @130b1135. They are ProtoJSON: names in camelCase or snake_case,
  bytes in base64 of either alphabet, padded or not; and one object where an array is due (recorded, as in Google's own
  samples). "Exactly one field within a Part should be set"; a role is "either 'user' or 'model'", by default 'user'.
- [E] "Unable to submit request because at least one contents field is required": Calcium-Ion/new-api-horizon#24,
  2025-03-07. "contents.parts must not be empty": vercel/ai#3775, 2026-07-22. "parts[0].data: required oneof field
  'data' must have one initialized field": router-for-me/CLIProxyAPI#1292, 2026-01-28; of `system_instruction`:
  songquanpeng/one-api#2243, 2025-04-17. "Unable to submit request because it has an empty text parameter", on Vertex
  AI: zuisong/gemini-openai-proxy#86, 2024-11-25. "Please use a valid role: user, model.": songquanpeng/one-api#1385,
  2024-04-28. "Please ensure that multiturn requests ends with a user role or a function response.":
  songquanpeng/one-api#836, 2023-12-18, still so in crewAIInc/crewAI#6973, 2026-08-12.
- [E] "Please ensure that function call turn comes immediately after a user turn or after a function response turn.":
  continuedev/continue#11164, 2026-03-07; so a history can not begin with a call. Contents of the model in a row are one
  turn (recorded). "Please ensure that function response turn comes immediately after a function call turn.":
  BerriAI/litellm#26755. "… the number of function response parts is equal to the number of function call parts of the
  function call turn.": earendil-works/pi#5528, 2026-06-08; all of them in one content: cloudwego/eino-ext#571,
  2025-11-27. The content of responses has no other part: anomalyco/opencode#43479, 2026-08-19.
- [S] Responses name their calls: by id where both have one, else in the order of the calls, as in
  router-for-me/CLIProxyAPI#5063, 2026-08-18. Ids are unique in their content.
- [E] "Invalid JSON payload received. Unknown name \"response\" at 'contents[N].parts[0].function_response': Proto field
  is not repeating, cannot start list.": symfony/ai#2040, 2026-05-06.
- [E] "Function call is missing a thought_signature in functionCall parts.", from Gemini 3 on, in the current turn, of
  the first call of a step: langgenius/dify-official-plugins#2088, 2025-11-18, and [D]
  ai.google.dev/gemini-api/docs/thought-signatures. It stands beside the call, not in it: Wei-Shaw/
  claude-relay-service#967, 2026-02-10. "Invalid value at '….thought_signature' (TYPE_BYTES), Base64 decoding failed":
  MayDay-wpf/snow-cli#84, 2025-12-19. [S] Only parts of the model have one, and no function response.
- [E] "Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), underscores
  (_), dots (.), colons (:), or dashes (-), with a maximum length of 64.": kaitranntt/ccs#25, 2025-11-30. (The types
  say 128.) [S] Functions of different names.
- [E] Of `parameters`: "Unknown name \"additionalProperties\"": nanbingxyz/5ire#42, 2025-01-19; "\"const\"":
  zed-extensions/mcp-server-brave-search#12, 2025-11-20; "\"type\" … Proto field is not repeating":
  zed-industries/zed#44875, 2026-02-14; "type: must be specified when not using one_of, any_of or all_of fields":
  danny-avila/LibreChat#6971; "required[0]: property is not defined": probelabs/probe#569, 2026-05-28; "properties:
  only allowed for OBJECT type": anomalyco/opencode#11889, 2026-02-03; "enum only allowed for STRING type":
  decolua/9router#380, 2026-03-21; "Invalid value at '….enum[0]' (TYPE_STRING), 2": microsoft/azure-devops-mcp#145;
  missing `items` of an array: cline/cline#7339. The types know `additionalProperties`, `ref` and `defs`, which are for
  Vertex AI.
- [D] `parametersJsonSchema` excludes `parameters`, and `responseJsonSchema` `responseSchema`, which need the MIME type:
  firebase.google.com/docs/reference/js/ai.generationconfig. [E] "Function calling with a response mime type:
  'application/json' is unsupported", before Gemini 3: googleapis/python-genai#867, 2025-05-27. "Function calling config
  is set without function_declarations.": AstrBotDevs/AstrBot#7407, 2026-04-07. [D] `allowedFunctionNames` with ANY or
  VALIDATED, of declared functions.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any

from tests.validators.body import NESTED, Body, is_base64

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
GENERATION = re.compile(r"gemini-(\d+)")
MIME = re.compile(r"[\w.+-]+/[\w.+-]+")
PARAMETERS = [
    *("contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent"),
    *("labels", "modelArmorConfig", "serviceTier", "store", "model"),
]
DATA = {  # the one field that a part has to have -> what may stand in it
    "text": [],
    "inlineData": ["mimeType", "data", "displayName"],
    "fileData": ["mimeType", "fileUri", "displayName"],
    "functionCall": ["id", "name", "args", "partialArgs", "willContinue"],
    "functionResponse": ["id", "name", "response", "parts", "willContinue", "scheduling"],
    "executableCode": ["id", "language", "code"],
    "codeExecutionResult": ["id", "outcome", "output"],
    "toolCall": ["id", "toolType", "args"],
    "toolResponse": ["id", "toolType", "response"],
}
BESIDE = [
    *("thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata", "mediaProcessing"),
    *("speechMetadata", "documentMetadata", "spreadsheetMetadata", "audioMetadata"),
]
SCHEMA = [
    *("type", "format", "title", "description", "nullable", "enum", "items", "maxItems", "minItems", "properties"),
    *("required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf"),
    *("propertyOrdering", "default", "minimum", "maximum"),
]
TYPES = ["STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"]
DECLARATION = [
    *("name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema", "behavior")
]
TOOLS = [
    *("functionDeclarations", "retrieval", "computerUse", "fileSearch", "googleSearch", "googleMaps", "codeExecution"),
    *("enterpriseWebSearch", "googleSearchRetrieval", "parallelAiSearch", "urlContext", "mcpServers", "exaAiSearch"),
]
MODES = ["AUTO", "ANY", "NONE", "VALIDATED", "MODE_UNSPECIFIED"]


def violations(body: Any, model: str = "") -> list[str]:
    """What is wrong with the decoded body of a request to this model, each as `path: rule`; nothing if it is valid."""
    found = Generate()
    found.plain("$", body)
    if found.must(isinstance(body, dict), "$", "must be an object"):
        generation = GENERATION.search(model)
        found.generate(camel(body), int(generation[1]) if generation else None)
    return found


class Generate(Body):
    """The violations found so far."""

    def generate(self, body: dict[str, Any], generation: int | None) -> None:
        self.keys(body, "$", PARAMETERS)  # [E]
        self.instruction(body.get("systemInstruction"))
        contents = self.array(listed(body.get("contents")), "contents")  # [E]
        for at, content in enumerate(contents):
            self.content(content, f"contents[{at}]")
        self.order(contents)
        if generation is not None and generation >= 3:
            self.signed(contents)
        names = self.toolbox(body.get("tools"))
        self.calling(body.get("toolConfig"), names)
        config = camel(body.get("generationConfig"))
        if self.must(isinstance(config, dict | None), "generationConfig", "must be an object") and config:
            self.config(config)
            json = config.get("responseMimeType") == "application/json"
            rule = "function calling with application/json is unsupported before Gemini 3"
            path = "generationConfig.responseMimeType"
            self.must(not (json and names and generation is not None and generation < 3), path, rule)  # [E]

    # ----------------------------------------------------------------------------------------------------- contents

    def instruction(self, content: Any) -> None:
        """[D] text only; any role is taken (recorded as 'user')"""
        if content is None:
            return
        path = "systemInstruction"
        if self.must(isinstance(content, dict), path, "must be an object"):
            self.keys(content, path, ["role", "parts"])
            for at, part in enumerate(self.array(listed(content.get("parts")), f"{path}.parts")):
                text = part.get("text") if isinstance(part, dict) else None
                self.must(
                    isinstance(text, str) and text, f"{path}.parts[{at}].text", "must be a non-empty string"
                )  # [E]

    def content(self, content: Any, path: str) -> None:
        if not self.must(isinstance(content, dict), path, "must be an object"):
            return
        self.keys(content, path, ["role", "parts"])  # [E]
        role = content.get("role", "user")
        self.one_of(role, f"{path}.role", ["user", "model"])  # [E]
        for at, part in enumerate(self.array(listed(content.get("parts")), f"{path}.parts")):  # [E] not empty
            if self.must(isinstance(part, dict), f"{path}.parts[{at}]", "must be an object"):
                self.one_part(camel(part), f"{path}.parts[{at}]", role)

    def one_part(self, part: dict[str, Any], path: str, role: Any) -> None:
        self.keys(part, path, [*DATA, *BESIDE])  # [E]
        data = [key for key in DATA if part.get(key) is not None]
        self.must(len(data) == 1, path, f"must have one of {[*DATA]}")  # [E], [D]
        signature = part.get("thoughtSignature")
        if signature is not None:
            ok = isinstance(signature, str) and signature and is_base64(signature)
            self.must(ok, f"{path}.thoughtSignature", "must be base64")  # [E]
            rule = "only on parts of the model that are not function response"
            self.must(role == "model" and "functionResponse" not in data, f"{path}.thoughtSignature", rule)  # [S]
        self.must(isinstance(part.get("thought"), bool | None), f"{path}.thought", "must be a boolean")  # [D]
        for kind in data:
            value, at = camel(part[kind]), f"{path}.{kind}"
            if kind == "text":
                full = value or signature is not None
                self.must(self.text(value, at) and full, at, "must not be empty")  # [E] of Vertex AI
            elif self.must(isinstance(value, dict), at, "must be an object"):
                self.keys(value, at, DATA[kind])  # [E]
                self.data(kind, value, at, role)

    def data(self, kind: str, value: dict[str, Any], path: str, role: Any) -> None:
        match kind:
            case "inlineData" | "fileData":
                mime = value.get("mimeType")
                ok = (isinstance(mime, str) and MIME.fullmatch(mime)) or (mime is None and kind == "fileData")
                self.must(ok, f"{path}.mimeType", "must be a MIME type")  # [D]
                if kind == "inlineData":
                    self.base64(value.get("data"), f"{path}.data")  # [D]
                else:
                    self.text(value.get("fileUri"), f"{path}.fileUri", blank=False)  # [D]
            case "functionCall" | "functionResponse":
                self.must(role == ("model" if kind == "functionCall" else "user"), path, f"not in role {role}")  # [D]
                self.function(value.get("name"), f"{path}.name")  # [E]
                self.must(isinstance(value.get("id"), str | None), f"{path}.id", "must be a string")  # [D]
                key = "args" if kind == "functionCall" else "response"
                given = value.get(key, {} if key == "args" else None)
                self.must(isinstance(given, dict), f"{path}.{key}", "must be an object")  # [E]
                parts = listed(value.get("parts", []))
                if self.must(isinstance(parts, list), f"{path}.parts", "must be an array"):  # [D]
                    for at, media in enumerate(parts):
                        self.media(camel(media), f"{path}.parts[{at}]")

    def media(self, media: Any, path: str) -> None:
        """[D] What a function response has beside its object."""
        if self.must(isinstance(media, dict), path, "must be an object"):
            kinds = [kind for kind in ("inlineData", "fileData") if isinstance(media.get(kind), dict)]
            if self.must(len(kinds) == 1, path, "must have inlineData or fileData"):
                self.data(kinds[0], camel(media[kinds[0]]), f"{path}.{kinds[0]}", "user")

    def function(self, name: Any, path: str) -> None:
        self.must(isinstance(name, str) and NAME.fullmatch(name), path, f"must match ^{NAME.pattern}$")

    # ------------------------------------------------------------------------------------------------------- history

    def order(self, contents: list[Any]) -> None:
        """Calls and their responses, in turns."""
        calls: list[dict[str, Any]] = []  # of the turn before
        for path, parts in turns(contents):
            responses = given(parts, "functionResponse")
            if responses:
                self.must(calls, path, "a function response turn must come at once after a function call turn")  # [E]
                self.must(len(responses) == len(parts), path, "a function response turn has no other parts")  # [E]
            if calls:
                rule = f"found {len(responses)} function responses to {len(calls)} function calls"
                if self.must(len(responses) == len(calls), path, rule):  # [E]
                    self.pairs(calls, responses, path)
            calls = given(parts, "functionCall")
            rule = "a function call turn must come after a user turn or a function response turn"
            self.must(not calls or path != "contents[0]", path, rule)  # [E]
            ids = [call["id"] for call in calls if isinstance(call.get("id"), str)]
            self.must(len({*ids}) == len(ids), path, "function calls have one id")  # [S]
        end = f"contents[{len(contents) - 1}]"
        self.must(not calls, end, f"found 0 function responses to {len(calls)} function calls")  # [E]
        said = not contents or role_of(contents[-1]) != "model"
        self.must(said or calls, end, "must end with a user turn or a function response")  # [E]

    def pairs(self, calls: list[dict[str, Any]], responses: list[dict[str, Any]], path: str) -> None:
        """[S]"""
        ids = [call.get("id") for call in calls]
        for at, response in enumerate(responses):
            call, id = calls[at], response.get("id")
            if id is not None and None not in ids:
                if not self.must(id in ids, path, f"no function call with the id {id!r}"):
                    continue
                call = calls[ids.index(id)]
            same = call.get("name") == response.get("name")
            self.must(same, path, f"the response of {response.get('name')!r} is to a call of {call.get('name')!r}")

    def signed(self, contents: list[Any]) -> None:
        """[E] In the current turn, which begins with what the user said last, the first call of each step is signed."""
        said = [
            at
            for at, content in enumerate(contents)
            if role_of(content) != "model" and not given(parts_of(content), "functionResponse")
        ]
        for at in range(said[-1] + 1 if said else 0, len(contents)):
            parts = parts_of(contents[at])
            first = next((index for index, part in enumerate(parts) if given([part], "functionCall")), None)
            if first is not None:
                rule = "function call is missing a thoughtSignature"
                self.must(parts[first].get("thoughtSignature"), f"contents[{at}].parts[{first}]", rule)

    # --------------------------------------------------------------------------------------------- tools and schemas

    def toolbox(self, tools: Any) -> list[str]:
        """The names of the declared functions."""
        names: list[str] = []
        if tools is None or not self.must(isinstance(listed(tools), list), "tools", "must be an array"):
            return names
        for at, tool in enumerate(camel(each) for each in listed(tools)):
            path = f"tools[{at}]"
            if self.must(isinstance(tool, dict), path, "must be an object"):
                self.keys(tool, path, TOOLS)  # [E]
                declarations = listed(tool.get("functionDeclarations", []))
                path = f"{path}.functionDeclarations"
                if self.must(isinstance(declarations, list), path, "must be an array"):
                    for index, each in enumerate(declarations):
                        names += self.declaration(camel(each), f"{path}[{index}]")
        self.must(len({*names}) == len(names), "tools", "names of functions must be unique")  # [S]
        return names

    def declaration(self, declaration: Any, path: str) -> list[str]:
        if not self.must(isinstance(declaration, dict), path, "must be an object"):
            return []
        self.keys(declaration, path, DECLARATION)  # [E]
        name, text = declaration.get("name"), declaration.get("description")
        self.function(name, f"{path}.name")  # [E]
        self.must(isinstance(text, str | None), f"{path}.description", "must be a string")  # [D]
        plain, full = declaration.get("parameters"), declaration.get("parametersJsonSchema")
        self.must(plain is None or full is None, f"{path}.parameters", "not together with parametersJsonSchema")  # [D]
        if plain is not None:
            self.schema(plain, f"{path}.parameters")
            ok = isinstance(plain, dict) and str(plain.get("type")).upper() == "OBJECT"
            self.must(ok or not isinstance(plain, dict), f"{path}.parameters.type", "must be OBJECT")  # [E]
        if full is not None:
            self.object_schema(full, f"{path}.parametersJsonSchema")  # [D]
        return [name] if isinstance(name, str) else []

    def calling(self, config: Any, names: list[str]) -> None:
        if config is None or not self.must(isinstance(config, dict), "toolConfig", "must be an object"):
            return
        calling, path = camel(camel(config).get("functionCallingConfig")), "toolConfig.functionCallingConfig"
        if calling is None or not self.must(isinstance(calling, dict), path, "must be an object"):
            return
        self.must(names, path, "is set without functionDeclarations")  # [E]
        self.keys(calling, path, ["mode", "allowedFunctionNames", "streamFunctionCallArguments"])  # [E]
        mode, allowed = calling.get("mode", "AUTO"), listed(calling.get("allowedFunctionNames", []))
        self.one_of(mode.upper() if isinstance(mode, str) else mode, f"{path}.mode", MODES)  # [D]
        path = f"{path}.allowedFunctionNames"
        if self.must(isinstance(allowed, list), path, "must be an array"):
            self.must(not allowed or mode in ("ANY", "VALIDATED"), path, "only with mode ANY or VALIDATED")  # [D]
            for at, name in enumerate(allowed if names else []):
                self.must(name in names, f"{path}[{at}]", "not among the functions")  # [D]

    def config(self, config: dict[str, Any]) -> None:
        """[D]"""
        path, plain, full = "generationConfig", config.get("responseSchema"), config.get("responseJsonSchema")
        mime = config.get("responseMimeType")
        self.must(plain is None or full is None, f"{path}.responseSchema", "not together with responseJsonSchema")
        kinds = ["application/json", *(["text/x.enum"] if full is None else [])]
        fits = mime in kinds or (plain is None and full is None)
        self.must(fits, f"{path}.responseMimeType", f"must be one of {kinds} with a schema")
        if plain is not None:
            self.schema(plain, f"{path}.responseSchema")
        self.must(isinstance(full, dict | None), f"{path}.responseJsonSchema", "must be an object")
        if config.get("temperature") is not None:
            self.between(config["temperature"], f"{path}.temperature", 0, 2)
        if config.get("topP") is not None:
            self.between(config["topP"], f"{path}.topP", 0, 1)
        if config.get("maxOutputTokens") is not None:
            self.whole(config["maxOutputTokens"], f"{path}.maxOutputTokens", 1)

    def schema(self, schema: Any, path: str) -> None:
        """[E] The subset of OpenAPI 3.0; without recursion, however deep."""
        stack = [(path, schema)]
        while stack:
            path, schema = stack.pop()
            if not self.must(isinstance(schema, dict), path, "must be an object"):
                continue
            schema = camel(schema)
            self.keys(schema, path, SCHEMA)
            kind = schema.get("type")
            if self.must(kind is not None or "anyOf" in schema, f"{path}.type", "must be specified without anyOf"):
                self.must(not isinstance(kind, list), f"{path}.type", "must be one type, no array")
                ok = isinstance(kind, str) and kind.upper() in TYPES
                self.must(ok or isinstance(kind, list | None), f"{path}.type", f"must be one of {TYPES}")
            self.values(schema, kind.upper() if isinstance(kind, str) else "", path)
            options, properties = schema.get("anyOf", []), schema.get("properties", {})
            if self.must(isinstance(options, list), f"{path}.anyOf", "must be an array"):
                stack += [(f"{path}.anyOf[{at}]", each) for at, each in enumerate(options)]
            if self.must(isinstance(properties, dict), f"{path}.properties", "must be an object"):
                stack += [(f"{path}.properties.{name}", each) for name, each in properties.items()]
            stack += [(f"{path}.{key}", schema[key]) for key in NESTED if key in schema and key in SCHEMA]

    def values(self, schema: dict[str, Any], kind: str, path: str) -> None:
        """[E]"""
        enum, required, properties = schema.get("enum", []), schema.get("required", []), schema.get("properties")
        if self.must(
            isinstance(enum, list) and all(isinstance(each, str) for each in enum), f"{path}.enum", "must be strings"
        ):
            self.must(not enum or kind in ("STRING", ""), f"{path}.enum", "only allowed for STRING type")
        self.must(kind != "ARRAY" or "items" in schema, f"{path}.items", "missing in an ARRAY")
        for key, only in {"items": "ARRAY", "properties": "OBJECT", "required": "OBJECT"}.items():
            self.must(key not in schema or kind in (only, ""), f"{path}.{key}", f"only allowed for {only} type")
        if self.must(isinstance(required, list), f"{path}.required", "must be an array"):
            for at, name in enumerate(required):
                defined = isinstance(properties, dict) and isinstance(name, str) and name in properties
                self.must(defined, f"{path}.required[{at}]", "property is not defined")


def camel(value: Any) -> Any:
    """An object with its own keys in camelCase; what is below stays as it is. Anything else as it is."""
    if not isinstance(value, dict):
        return value
    return {
        re.sub(r"(?<=[a-z0-9])_([a-z0-9])", lambda found: found[1].upper(), key) if isinstance(key, str) else key: each
        for key, each in value.items()
    }


def listed(value: Any) -> Any:
    """One object as an array of it."""
    return [value] if isinstance(value, dict) else value


def turns(contents: list[Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Where a turn begins, and its parts: contents of the model in a row are one turn (recorded)."""
    groups = itertools.groupby(enumerate(contents), key=lambda pair: role_of(pair[1]))
    for role, group in groups:
        members = [(at, parts_of(content)) for at, content in group]
        if role == "model":
            yield f"contents[{members[0][0]}]", [part for _, parts in members for part in parts]
        else:
            yield from ((f"contents[{at}]", parts) for at, parts in members)


def role_of(content: Any) -> Any:
    return content.get("role", "user") if isinstance(content, dict) else None


def parts_of(content: Any) -> list[dict[str, Any]]:
    parts = listed(content.get("parts")) if isinstance(content, dict) else None
    return [camel(part) for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def given(parts: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The function calls, or responses, among parts."""
    return [camel(part[kind]) for part in parts if isinstance(part.get(kind), dict)]
