"""Makes the output of `why`: the entries from a question to an answer, as a tree that fits a page.

A record is the store of all runs, and a run is the list of entries of one conversation of an agent. An entry is called
a node here, and its number in the run is its seq. A node is drawn below the tool call or the analysis (model reply)
that it belongs to. `←` names the nodes that it was made from, unless that is only the node above it. Nodes that do not
fit are left out, beginning with nodes of earlier turns. The last line counts them.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.cells import cell_len, chop_cells

from gesta.cli.layout import fold, page_width, wrap
from gesta.cli.options import OnRecord
from gesta.cli.pages import reading
from gesta.cli.talk import BOLD, Stop, count, harmless, json_line, put, put_all, say, styled
from gesta.kinds import Kind
from gesta.record.record import Record
from gesta.views.across import explain_run
from gesta.views.drawn import Drawn, drawn, narrowed
from gesta.views.lineage import Explanation, Node

LINES, WIDEST = 40, 100
"""Greatest number of lines and columns of the page, unless `--all` is set."""
BEFORE = 30
"""The text of a node is shown from this many characters before the first passage that the answer repeats."""
PASSAGES = 4
"""Greatest number of lines that are shown of a node of type `Retrieval`."""
SOURCES = 5
"""Greatest number of nodes that are listed after one `←`."""
RANKS = ("Thought", "Analysis", "Note", "Summary", "Artifact", "Resolution", "Observation", "ToolUse", "Retrieval")
"""Types of nodes, in the order in which nodes are left out."""
UNDER = {"Thought": "Analysis", "ToolUse": "Analysis"} | dict.fromkeys(
    ("Observation", "Retrieval", "Artifact", "Approval", "Resolution"), "ToolUse"
)
"""The type of the node above a node in the tree, by the node's own type."""


def why(options: OnRecord, run: str, entry: int | None, *, everything: bool) -> None:
    """Print the nodes that an entry was made from.

    Args:
        run: an id, the start of one, `last`, or a session.
        entry: seq (number in the run) of the entry; `None` for the last answer.
        everything: whether all nodes and whole texts are shown.
    """
    found = reading(options, lambda record: explained(record, run, entry))
    target = found.nodes[-1]
    answer = target.kind is Kind.Assistant or target.type == "Conclusion"
    passages = drawn(found) if answer else ()
    if options.json:
        put_all(map(json_line, nodes(found)))
        return
    width = page_width() if everything else min(page_width(), WIDEST)
    how = "drew on" if passages and not everything else "was made from"
    put(styled(f"what entry {target.seq} of run {harmless(target.run)} {how}", BOLD, sys.stdout))
    put_all(Page(found, passages, width=width, everything=everything).lines())
    if entry is None and not answer:
        say("There is no answer yet; this is the last that was said or done.")
    elif answer and not found.questions:
        say("Nobody had asked anything before it.")
    if not found.complete:
        asked = ", ".join(found.questions)
        say(f"No causes lead from it to its question, {asked}: whoever wrote it down named none.")


def nodes(found: Explanation) -> list[dict[str, Any]]:
    """Return the nodes of an explanation, each as a dict, as `gesta why --json` writes them."""
    target = found.nodes[-1]
    passages = drawn(found) if target.kind is Kind.Assistant or target.type == "Conclusion" else ()
    return [{**msgspec.to_builtins(node), **_drawn(node, passages)} for node in found.nodes]


def _drawn(node: Node, passages: Sequence[Drawn]) -> dict[str, Any]:
    return {"drawn": [[each.start, each.end, each.at, each.to] for each in passages if each.id == node.id]}


async def explained(record: Record, run: str, seq: int | None) -> Explanation:
    """Return the nodes that an entry was made from, in this run and in other runs. Raises Stop for an unknown entry.

    Args:
        seq: number of the entry in the run; `None` for the last answer.
    """
    row = await record.find(run)
    if seq is not None and seq > row.head:
        raise Stop(f"No entry {seq} in run {row.run}. Its entries are 1 to {row.head}; `gesta log` shows them.")
    return await explain_run(record, row.run, seq)


class Page:
    """The nodes of an explanation as lines of text, drawn as a tree."""

    def __init__(self, found: Explanation, passages: Sequence[Drawn], *, width: int, everything: bool) -> None:
        self._found, self._width, self._everything = found, width, everything
        self._passages = passages
        self._nodes = {node.id: node for node in found.nodes}
        self._kept = self._nodes if everything else self._fitting()
        self._children: dict[str, list[Node]] = {}
        self._over: dict[str, str] = {}

    def lines(self) -> Iterator[str]:
        """Yield the lines of the tree, and a last line that counts the nodes left out."""
        rows = list(self._rows())
        numbers = max((cell_len(number) for number, _, _ in rows), default=0)
        column = min(max((cell_len(head) for _, head, _ in rows), default=0), self._width // 3)
        for number, head, node in rows:
            left = f"{number:>{numbers}}  {head}{' ' * (column - cell_len(head))}  "
            for place, line in enumerate(self._text(node, self._width - cell_len(left))):
                whole = ((left if not place else " " * cell_len(left)) + line).rstrip()
                yield whole if self._everything else self._cut(whole, self._width)
        missing = Counter(node.type for node in self._nodes.values() if node.id not in self._kept)
        if missing:
            told = ", ".join(f"{number} {type_}" for type_, number in missing.most_common())
            if self._passages:
                told = f"{count(missing.total(), 'entry')} from which it repeats nothing"
            yield self._cut(f"left out: {told} (--all shows them)", self._width)

    def _fitting(self) -> dict[str, Node]:
        """Return the nodes to show, by id.

        If the answer repeats passages of other nodes, only nodes that led to these passages are shown. If there are too
        many lines, nodes are left out, beginning with nodes of earlier turns.
        """
        found = self._found
        wanted = narrowed(found, self._passages) if self._passages else self._nodes
        kept = {id: node for id, node in self._nodes.items() if id in wanted}
        target = found.nodes[-1]
        asked = [self._nodes[id].seq for id in found.questions if id in self._nodes]
        first = min(asked, default=0)
        long = sum(len(self._lines_of(node)) for node in kept.values())

        def rank(node: Node) -> tuple[bool, int]:
            earlier = node.run == target.run and node.seq < first
            return not earlier, RANKS.index(node.type) if node.type in RANKS else len(RANKS)

        if long > LINES - 1:
            for node in sorted(kept.values(), key=rank):
                if long <= LINES - 2:
                    break
                if node.id != target.id and node.id not in found.questions:
                    long -= len(self._lines_of(kept.pop(node.id)))
        return kept

    def _rows(self) -> Iterator[tuple[str, str, Node]]:
        """Yield the rows of the tree: the number of a node, its branch with the type of the node, and the node."""
        target, roots = self._found.nodes[-1], []
        for node in self._kept.values():
            over = self._under(node) or (self._host(node.run) if node.run != target.run else None)
            if over is None:
                roots.append(node)
            else:
                self._over[node.id] = over
                self._children.setdefault(over, []).append(node)
        told: set[str] = set()
        for node in [*roots, *self._kept.values()]:  # after the roots, only nodes that are below each other in a circle
            yield from self._tree(node, ("", ""), told)

    def _tree(self, node: Node, art: tuple[str, str], told: set[str]) -> Iterator[tuple[str, str, Node]]:
        left = [(node, *art)]
        while left:
            node, before, below = left.pop()
            if node.id in told:
                continue
            told.add(node.id)
            number = self._number(node, self._found.nodes[-1].run)
            yield number, before + node.type + self._arrow(node), node
            children = self._children.get(node.id, [])
            for place, child in reversed(list(enumerate(children, 1))):
                last = place == len(children)
                left.append((child, below + ("└ " if last else "├ "), below + ("  " if last else "│ ")))

    def _under(self, node: Node) -> str | None:
        """Return the id of the call or analysis below which a node is drawn.

        Returns `None` if no call or analysis in the node's run led to the node.
        """
        wanted, left, seen = UNDER.get(node.type), list(node.derived_from), set[str]()
        while wanted is not None and left:
            id = left.pop(0)
            over = self._nodes.get(id)
            if id in seen or over is None or over.run != node.run:
                continue
            if over.type == wanted and id in self._kept:
                return id
            seen.add(id)
            if over.type in UNDER:
                left += over.derived_from
        return None

    def _host(self, run: str) -> str | None:
        ids = {node.id for node in self._nodes.values() if node.run == run}
        return next((node.id for node in self._kept.values() if node.run != run and ids & set(node.derived_from)), None)

    def _arrow(self, node: Node) -> str:
        """Return an arrow and the numbers of the nodes from which a node was made, such as ` ← 3, 4`.

        The text is empty if the node was made only from the node above it in the tree.
        """
        if list(node.derived_from) == [self._over.get(node.id)] or not node.derived_from:
            return ""
        shown = self._kept if self._passages else self._nodes
        sources = [shown[id] for id in node.derived_from if id in shown]
        if not sources:
            return ""
        numbers = [self._number(each, node.run) for each in sources]
        more = f" and {len(numbers) - SOURCES} more" if len(numbers) > SOURCES else ""
        return f" ← {', '.join(numbers[:SOURCES])}{more}{' (inferred)' if node.inferred else ''}"

    @staticmethod
    def _number(node: Node, run: str) -> str:
        """Return the seq of a node as text, such as `7`; for a node of another run than `run`, such as `0a1b2c3d.7`."""
        return str(node.seq) if node.run == run else f"{harmless(node.run[:8])}.{node.seq}"

    def _marked(self, node: Node) -> str:
        """Return the text of a node, with brackets around the passages that the answer repeats.

        The text begins shortly before the first passage.
        """
        target = self._found.nodes[-1].id
        own = [(each.start, each.end) for each in self._passages if each.id == node.id]
        spans = sorted({(each.at, each.to) for each in self._passages} if node.id == target else set(own))
        marked, end = "", 0
        first = spans[0][0] if spans and node.id != target else 0
        if first > BEFORE + len("..."):  # otherwise the dots would take as much space as the text
            end, marked = first - BEFORE, "..."
        for start, stop in spans:
            if start >= end:
                marked += f"{node.text[end:start]}[{node.text[start:stop]}]"
                end = stop
        return marked + node.text[end:]

    def _lines_of(self, node: Node) -> list[str]:
        text = self._marked(node) if self._passages and not self._everything else node.text
        lines = harmless(text).strip().split("\n")
        return fold(lines, PASSAGES) if node.type == "Retrieval" else [" ".join(" ".join(lines).split())]

    def _text(self, node: Node, width: int) -> Sequence[str]:
        width = max(width, 20)
        said = f"{harmless(node.status)} " if node.status is not None else ""
        if self._everything:
            return wrap(said + harmless(node.text).strip(), width)
        if self._passages and node.id == self._found.nodes[-1].id:
            return wrap(said + harmless(self._marked(node)).strip(), width)
        first, *rest = self._lines_of(node)
        return [self._cut(line, width) for line in (said + first, *rest)]

    @staticmethod
    def _cut(line: str, width: int) -> str:
        line = line.expandtabs(4)
        return line if cell_len(line) <= width else f"{chop_cells(line, width - 3)[0]}..."
