#!/usr/bin/env python3
"""Draws docs/first.svg, the picture on the README: `python .ci/picture.py`.

It plays `gesta demo` in a folder of its own, and draws what that left: the entries of the run whose process was
killed, the rows in its shop, and the causes of the answer, back to its question.
"""

import io
import os
import tempfile
from contextlib import chdir
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console

import gesta
from gesta.demo import shop
from gesta.demo.play import Choices, play
from gesta.kinds import (
    ApprovalContent,
    AssistantContent,
    AttemptContent,
    FaultContent,
    ResolutionContent,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)

TARGET = Path(__file__).resolve().parents[1] / "docs" / "first.svg"
RECORD, SESSION = "runs.gesta", "demo-1-crash"
WIDTH, HEIGHT, PANEL, LINE = 900, 336, 280, 22
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.m { font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre }
.h { font-weight: 600; font-size: 14px } .s { fill: #59636e }
.bad { fill: #c4232f; font-weight: 600 } .good { fill: #1a7f37; font-weight: 600 }
.card { fill: #ffffff } .panel { fill: #f6f8fa; stroke: #d1d9e0 } .said { fill: #ddf4ff } .told { fill: #dafbe1 }
.line { stroke: #8c959f; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .s { fill: #9aa4af } .bad { fill: #ff7b72 } .good { fill: #56d364 }
.card { fill: #0d1117 } .panel { fill: #161b22; stroke: #3d444d } .said { fill: #12335a } .told { fill: #12391f }
}
"""


def played(folder: Path) -> dict[str, Any]:
    """Play the demo in an empty folder; return what it left, by name."""
    console = Console(file=io.StringIO(), width=80)
    with chdir(folder):
        assert play(Choices(record=RECORD, yes=True), console) == 0
        with gesta.open_sync(RECORD, readonly=True) as record:
            entries = record.read(record.find(SESSION).run)
            answered = next(place for place, each in enumerate(entries) if isinstance(each.content, ApprovalContent))
            before, after = list(reversed(entries[:answered])), entries[answered:]
            first = {
                kind: next(
                    each
                    for each in (before if kind in (ToolCallContent, UserContent) else after)
                    if isinstance(each.content, kind)
                )
                for kind in (
                    UserContent,
                    ToolCallContent,
                    ApprovalContent,
                    AttemptContent,
                    ResolutionContent,
                    ToolResultContent,
                    AssistantContent,
                )
            }
            over = next(each for each in after if isinstance(each.content, FaultContent) and each.content.over)
            nodes = {node.id: node for node in record.explain(first[AssistantContent]).nodes}
        booked = shop.count(shop.place(RECORD, SESSION)).booked
    chain = [nodes[first[AssistantContent].id]]
    while chain[0].type != "Question":
        chain.insert(0, nodes[max(chain[0].derived_from, key=lambda each: nodes[each].seq)])
    said = console.file.getvalue().splitlines()
    return {
        "first": first,
        "over": over,
        "booked": booked,
        "chain": [node for node in chain if node.type != "Analysis"],
        "killed": next(line for line in said if line.startswith("killed ")).split("with ")[1],
        "counts": next(line for line in said if line.startswith("refunds fired")).split(", "),
    }


def text(x: float, y: float, words: str, style: str = "") -> str:
    """Return a line of text."""
    return f'<text x="{x}" y="{y}" class="{style}">{escape(words)}</text>'


def bubble(x: float, y: float, lines: list[str], style: str) -> str:
    """Return what somebody said."""
    box = f'<rect x="{x}" y="{y}" width="{PANEL - 28}" height="{12 + 18 * len(lines)}" rx="8" class="{style}"/>'
    return box + "".join(text(x + 10, y + 20 + 18 * place, line) for place, line in enumerate(lines))


def panel(place: int, title: str) -> tuple[float, str]:
    """Return the left edge of a panel's contents, and the panel."""
    x = 15 + place * (PANEL + 15)
    box = f'<rect x="{x}" y="15" width="{PANEL}" height="{HEIGHT - 30}" rx="8" class="panel"/>'
    return x + 14, box + text(x + 14, 40, title, "h")


def rows(x: float, y: float, lines: list[tuple[object, str, str]]) -> str:
    """Return lines of the record: seq, kind, and what it says."""
    return "".join(
        text(x, y + LINE * place, f"{seq!s:>2} {kind:<11}", "m s") + text(x + 105, y + LINE * place, words, "m")
        for place, (seq, kind, words) in enumerate(lines)
    )


def cut(words: str, most: int) -> str:
    """Return the first sentence, or the words of it that have space."""
    words = words.split(". ", maxsplit=1)[0]
    return words if len(words) <= most else words[: most - 1].rsplit(" ", 1)[0] + " …"


def draw(left: dict[str, Any]) -> str:
    """Return the picture of what a play left."""
    first = left["first"]
    call, result = first[ToolCallContent].content, first[ToolResultContent].content.tool_result
    asked, answer = first[UserContent].content.value, first[AssistantContent].content.value
    paid = f"{call.tool_name}({call.tool_args['order_id']}, {call.tool_args['amount']})"
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" class="card"/>']

    x, box = panel(0, "1  Killed after the shop paid")
    parts += [box, bubble(x, 54, [asked.split(". ")[0] + "."], "said")]
    parts.append(
        rows(
            x,
            110,
            [
                (first[ToolCallContent].seq, "call", paid),
                (first[ApprovalContent].seq, "approval", first[ApprovalContent].content.verdict),
                (first[AttemptContent].seq, "attempt", "on disk, may start"),
            ],
        )
    )
    parts.append(rows(x, 190, [("", "the shop", f"{left['booked']} refund paid")]))
    parts.append(text(x, 226, f"killed: {left['killed']}", "bad"))
    parts.append(text(x, 248, f"Entry {first[AttemptContent].seq} has no result on record:"))
    parts.append(text(x, 268, "was it paid, or not?"))
    parts.append(text(x, 300, "A retry would pay again.", "s"))

    x, box = panel(1, "2  The same program again")
    parts.append(box)
    parts.append(
        rows(
            x,
            72,
            [
                (left["over"].seq, "looked up", f"attempt {left['over'].content.of} is over"),
                (first[ResolutionContent].seq, "settled", f"the shop: {first[ResolutionContent].content.verdict}"),
                (first[ToolResultContent].seq, "result", f"{result['amount']} paid back"),
            ],
        )
    )
    sentence = answer.split(". ")[0] + "."
    head = cut(sentence, 34).removesuffix(" …")
    parts.append(bubble(x, 134, [head, sentence[len(head) :].strip()], "told"))
    parts += [text(x, 226 + 22 * place, line, "good") for place, line in enumerate(left["counts"])]
    parts.append(text(x, 280, "The doubt was settled by asking the", "s"))
    parts.append(text(x, 300, "shop. Nobody guessed.", "s"))

    x, box = panel(2, "3  Why that answer?")
    parts += [box, text(x, 64, f"gesta why {SESSION} {first[AssistantContent].seq}", "m s")]
    says = {
        "Approval": lambda node: node.status,
        "Resolution": lambda node: f"{node.status}, by reconcile",
        "ToolUse": lambda _: paid,
        "Observation": lambda _: f"{result['amount']} to {result['to']}",
    }
    top, step = 92, 34
    chain = left["chain"]
    parts.append(f'<path d="M{x + 8} {top - 4}V{top + step * (len(chain) - 1) - 4}" class="line"/>')
    for place, node in enumerate(chain):
        y = top + step * place
        parts.append(
            f'<circle cx="{x + 8}" cy="{y - 4}" r="5" class="{"told" if node is chain[-1] else "said"} line"/>'
        )
        words = says.get(node.type, lambda node: node.text)(node)
        parts.append(text(x + 22, y, f"{node.seq} {node.type}", "m s") + text(x + 22, y + 15, cut(words, 32)))
    title = "A refund is paid, the process is killed, and the same program settles the doubt without paying twice"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{title}"><title>{title}</title><style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    os.environ.pop("GESTA_RECORD", None)
    with tempfile.TemporaryDirectory() as made:
        TARGET.write_text(draw(played(Path(made))), encoding="utf-8")
