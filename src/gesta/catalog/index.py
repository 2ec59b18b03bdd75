"""A catalog: the tools and prompts of a folder, and the search in them."""

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
"""Smallest number of letters of a word that also matches longer words that begin with it."""
NAMED = 3
"""The weight of a word in an item's name, relative to a word in its description."""
MOST_FILES = 50_000
"""Greatest number of files of a folder without git. A folder with more, such as `/`, is hardly a project."""


class NotInCatalog(GestaError, LookupError):
    """Raised if a catalog has no item of this name, or if a folder cannot be read as a catalog."""


class Found(Struct, frozen=True):
    """A tool or prompt that a search has found, with its score."""

    item: Item
    score: float
    """The higher, the better the match. Scores can be compared only within one search."""


class Catalog(Struct, frozen=True, kw_only=True):
    """The tools and prompts of a folder, as they were when `index` read the folder."""

    folder: str
    version: Version
    """Version of the folder. With `gesta.Agent(catalog=str(catalog.version))`, it is recorded at the beginning of each
    turn."""
    items: list[Item]
    """The items, sorted by kind and name."""
    problems: list[str]
    """Messages about items that could not be read, each with the file, and the line if it is known."""

    def item(self, name: str, kind: Sort | None = None) -> Item:
        """Return the item with this name and kind, or of any kind. Raises NotInCatalog if there is no such item."""
        for each in self.items:
            if each.name == name and kind in (None, each.kind):
                return each
        names = [each.name for each in self.items if kind in (None, each.kind)]
        found = f"No {kind or 'item'} {name!r} in the catalog of {self.folder!r}.{nearest(name, names)}"
        raise NotInCatalog(f"{found} There {'is' if len(names) == 1 else 'are'}: {', '.join(names) or 'none at all'}.")

    def prompt(self, name: str) -> Item:
        """Return the prompt with this name. Raises NotInCatalog if there is no such prompt."""
        return self.item(name, "prompt")

    def tools(self, *names: str) -> list[Tool]:
        """Run the files that define these tools, and return the tools in the order of `names`.

        Raises:
            NotInCatalog: there is no tool of that name, or its file makes no such tool when it runs.
            BaseException: any error that a file raises when it runs.
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
        """Return the items that contain at least one of the words, the best match first.

        Without words, return all items, sorted by kind and name.

        Args:
            words: the words, separated by spaces or other signs.
            kind: `tool` or `prompt`, to return only items of this kind.
            annotations: annotations that an item must have, all of them.
            limit: greatest number of items.
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
    """Read the tools and prompts of a folder, with their versions from git. No code in the folder runs.

    Files that git ignores are left out; without git, hidden files are left out. `Catalog.problems` names the items that
    cannot be read.

    Raises:
        NotInCatalog: there is no such folder, or it holds more than MOST_FILES files without git.
    """
    root = Path(folder)
    if not root.is_dir():
        raise NotInCatalog(f"There is no folder {str(folder)!r}. Name one that holds tools or prompts.")
    history = History(root)
    listed = files_without_git(root, MOST_FILES) if history.files is None else history.files
    if history.files is None and len(listed) > MOST_FILES:
        raise NotInCatalog(
            f"{str(folder)!r} holds more than {MOST_FILES:,} files, and git does not keep it. "
            "Name the folder that holds the tools and prompts."
        )
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
    """Return the words of an item's name, description and annotations, each with its weight."""
    named = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", item.name)
    counts = Counter(WORD.findall(item.description.lower()))
    counts.update(WORD.findall(" ".join(item.annotations.values()).lower()))
    for word in WORD.findall(named.lower()):
        counts[word] += NAMED
    return counts


def _score(asked: set[str], own: Counter[str], every: list[Counter[str]]) -> float:
    """Return how well an item matches a search, from 0 on. A rare word adds more to the score than a frequent word.

    Args:
        asked: the words of the search.
        own: the words of the item, with their weights.
        every: the words of all items.
    """
    score = 0.0
    for word in asked:
        times = sum(own[each] for each in _alike(word, own))
        having = sum(any(True for _ in _alike(word, other)) for other in every) if times else 0
        score += times / (times + 1) * math.log(1 + len(every) / having) if times else 0
    return score


def _alike(word: str, words: Mapping[str, int]) -> Iterator[str]:
    """Yield the words among `words` that equal `word`, begin with it, or are a beginning of it."""
    for each in words:
        short, long = sorted((word, each), key=len)
        if each == word or (len(short) >= SAME and long.startswith(short)):
            yield each
