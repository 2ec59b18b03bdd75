"""The formatters: each turns entries into messages in one form, such as native tool calls or ReAct as text."""

ORDER = ("tool_calls", "text_form", "react_text", "codeact_text", "json_text", "transcript", "repair")
"""Files in reading order: each imports only files before it."""
