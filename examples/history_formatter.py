"""A custom history formatter: three methods decide what a model sees of the past. The record keeps everything.

Prints:
    user       Is the vault shut?
    assistant  calls vault(pin=••••)
    tool       shut shut shut shut …
    assistant  It is shut.
"""

import json
from typing import Any

import gesta
from gesta.compat.kodeagent.llm_message import LLMMessage
from gesta.compat.kodeagent.react import ReActHistoryFormatter


class Discreet(ReActHistoryFormatter):
    """A formatter that leaves out thoughts, hides arguments, and cuts long results."""

    def _get_common_metadata(self, msg: Any) -> dict[str, Any]:
        return super()._get_common_metadata(msg) | {"_thought": None}

    def format_tool_call(self, msg: Any, state: dict[str, Any]) -> dict[str, Any]:
        """Replace the value of each argument by dots."""
        made = super().format_tool_call(msg, state)
        made["tool_calls"][0]["function"]["arguments"] = json.dumps(dict.fromkeys(json.loads(msg.args), "••••"))
        return made

    def _format_user_or_generic(self, msg: Any, extra_metadata: dict[str, Any] | None = None) -> LLMMessage:
        made = super()._format_user_or_generic(msg, extra_metadata)
        if msg.role == "tool" and len(made["content"]) > 20:
            made["content"] = made["content"][:20] + "…"
        return made


@gesta.tool(effect="pure")
def vault(pin: str) -> str:
    """Check whether the vault is shut."""
    return "shut " * 100 if pin == "1234" else "open"


model = gesta.scripted(["I try the pin 1234.", gesta.call("vault", pin="1234")], "It is shut.")
agent = gesta.Agent("guard", model=model, tools=[vault], formatter=Discreet())

if __name__ == "__main__":
    gesta.run_sync(agent, "Is the vault shut?", record="vault.gesta", session="s")
    with gesta.open_sync("vault.gesta") as record:
        entries = record.read(record.find("s").run)
    for message in Discreet().format(entries, Discreet().start()):
        calls = (
            f"calls {call.name}({', '.join(f'{key}={call.args[key]}' for key in call.args)})" for call in message.calls
        )
        print(f"{message.role:<10}", message.text or "".join(calls))
