"""A folder of tools and prompts as a catalog."""

import math
import re
import runpy
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from gesta.catalog.item import PROMPT, PYTHON, BadItem, Item, items
from gesta.catalog.version import History, Version, files_without_git
from gesta.errors import GestaError, nearest
from gesta.function_tool.tool import Tool

Sort = Literal["tool", "prompt"]
WORD = re.compile(r"[^\W_]+")
SAME = 4
"""Letters from which on a word is found by its beginning."""
NAMED = 3
"""How many times a word of a name counts as one of a description."""


class NotInCatalog(GestaError, LookupError):
    """A catalog has no item of this name."""


class Found(Struct, frozen=True):
    """An item that was found by words."""

    item: Item
    score: float
    """Higher is better; comparable within one search."""


class Catalog(Struct, frozen=True, kw_only=True):
    """The tools and prompts of a folder, as they were when it was read. Made by `index`."""

    folder: str
    version: Version
    """Of the folder: what stands in the begin of a turn, by `gesta.Agent(catalog=str(catalog.version))`."""
    items: list[Item]
    """By kind and name."""
    problems: list[str]
    """What could not be read, each with its file and line."""

    def item(self, name: str, kind: Sort | None = None) -> Item:
        """Return the item of a name. Raises NotInCatalog."""
        for each in self.items:
            if each.name == name and kind in (None, each.kind):
                return each
        names = [each.name for each in self.items if kind in (None, each.kind)]
        found = f"No {kind or 'item'} {name!r} in the catalog of {self.folder!r}.{nearest(name, names)}"
        raise NotInCatalog(f"{found} There {'is' if len(names) == 1 else 'are'}: {', '.join(names) or 'none at all'}.")

    def prompt(self, name: str) -> Item:
        """Return the prompt of a name. Raises NotInCatalog."""
        return self.item(name, "prompt")

    def tools(self, *names: str) -> list[Tool]:
        """Run the files of these tools and return the tools, in that order.

        Raises:
            NotInCatalog: there is no tool of that name, or its file makes no such tool when it runs.
            BaseException: whatever a file raises when it runs.
        """
        ran: dict[str, dict[str, Tool]] = {}
        made = []
        for name in names:
            source = self.item(name, "tool").source
            if source not in ran:
                values = runpy.run_path(str(Path(self.folder, source))).values()
                ran[source] = {each.name: each for each in values if isinstance(each, Tool)}
            if name not in ran[source]:
                raise NotInCatalog(f"{source!r} makes no tool {name!r} when it runs.{nearest(name, [*ran[source]])}")
            made.append(ran[source][name])
        return made

    def find(
        self,
        words: str = "",
        *,
        kind: Sort | None = None,
        annotations: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Found]:
        """Return items that hold one of the words, best first; without words, all of them by name.

        Args:
            annotations: what an item must be annotated with, each of them.
        """
        wanted = (annotations or {}).items()
        every = [each for each in self.items if kind in (None, each.kind) and wanted <= each.annotations.items()]
        counted = [_words(each) for each in every]
        asked = set(WORD.findall(words.lower()))
        found = [Found(each, round(_score(asked, own, counted), 3)) for each, own in zip(every, counted, strict=True)]
        if asked:
            found = sorted((one for one in found if one.score > 0), key=lambda one: (-one.score, one.item.name))
        return found[:limit]


def index(folder: str | Path) -> Catalog:
    """Read the tools and prompts of a folder, and their versions from git. No code of it runs.

    What git ignores is left out; without git, what is hidden. What cannot be read is named in `problems`.

    Raises:
        NotInCatalog: there is no such folder.
    """
    root = Path(folder)
    if not root.is_dir():
        raise NotInCatalog(f"There is no folder {str(folder)!r}. Name one that holds tools or prompts.")
    history = History(root)
    listed = files_without_git(root) if history.files is None else history.files
    paths = [path for path in listed if path.endswith((PYTHON, PROMPT)) and (root / path).is_file()]
    found: dict[tuple[str, str], Item] = {}
    problems = []
    for path in paths:
        try:
            for item in items(path, (root / path).read_text(encoding="utf-8"), history.of_file(path)):
                first = found.setdefault((item.kind, item.name), item)
                if first is not item:
                    raise BadItem(path, item.line, f"{item.kind} {item.name!r} is also in {first.source}:{first.line}")
        except BadItem as error:
            problems.append(str(error))
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{path}: {error}.")
    every = [found[key] for key in sorted(found)]
    version = history.of_folder({item.source for item in every})
    return Catalog(folder=str(root), version=version, items=every, problems=problems)


def _words(item: Item) -> Counter[str]:
    """Count the words that an item is found by."""
    named = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", item.name)
    counts = Counter(WORD.findall(item.description.lower()))
    counts.update(WORD.findall(" ".join(item.annotations.values()).lower()))
    for word in WORD.findall(named.lower()):
        counts[word] += NAMED
    return counts


def _score(asked: set[str], own: Counter[str], every: list[Counter[str]]) -> float:
    """Score a text by the words that it shares, seldom ones higher."""
    score = 0.0
    for word in asked:
        times = sum(own[each] for each in _alike(word, own))
        having = sum(any(True for _ in _alike(word, other)) for other in every) if times else 0
        score += times / (times + 1) * math.log(1 + len(every) / having) if times else 0
    return score


def _alike(word: str, words: Mapping[str, int]) -> Iterator[str]:
    """Yield the words that are the same, or longer or shorter forms of it."""
    for each in words:
        short, long = sorted((word, each), key=len)
        if each == word or (len(short) >= SAME and long.startswith(short)):
            yield each
