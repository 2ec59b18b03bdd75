"""Finds which values, names and passages of its sources an answer repeats.

The sources are the nodes of the answer's explanation: entries such as the question and the results of tools. The
sources contain everything that the model was sent: the whole conversation. This module finds the parts that the answer
repeats. It compares words, not meaning, so rephrased content is not found. If several sources contain a repeated
passage, the first of them is named, and in addition those in the answer's own turn.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation

from msgspec import Struct

from gesta.views.lineage import Explanation, Node

SOURCES = frozenset({"Question", "Observation", "Retrieval", "Instructions", "Resolution", "Artifact", "Summary"})
"""Types of nodes that bring in new content. All other nodes are made from them."""
LONGEST = 200_000
"""Greatest number of characters of a text that are compared."""
KEPT = 1_000_000
"""Greatest number of characters of texts whose words are kept in memory for other explanations, which takes about 50
MB."""
WORDS, LETTERS = 3, 4
"""Smallest number of words in a passage, and smallest number of letters that one of its words must have."""
ALONE = 5
"""Smallest number of letters of a word that is a passage on its own, if no other source contains the word."""
WORD = re.compile(r"\d+(?:[.,:/-]\d+)*|\w+(?:[@.'\u2019_-]\w+)*")
QUOTES = ("'", '"')
"""Quotation marks. A capitalised word after one of them is taken for a name, even at the beginning of a sentence."""
COMMON = """
    a about after again all also am an and any anything are aren as at back be because been before being below
    between both but by can cannot could couldn did didn do does doesn doing don done down during each either else
    everything for from further get go going good great had has hasn have having he help her here hers him his how i
    if in into is isn it its itself just know let like made make may me more most much must my need needed new no
    nor not now of off ok okay on once one only or order other our out over please same shall she should so some
    something still such sure than thank thanks that the their them then there these they this those through to too
    under until up us very want wanted was wasn we well were what when where which while who why will with won would
    wouldn yes yet you your yours
"""
"""English words that are too frequent to identify a source. For words such as `don't`, only the part before the
apostrophe is listed."""
COMMON_WORDS = frozenset(COMMON.split())


class Drawn(Struct, frozen=True):
    """A passage of an answer that repeats words of a source. Positions count characters."""

    id: str
    """Id of the source's entry, `run.seq`."""
    start: int
    """Beginning of the passage in the source's text."""
    end: int
    """End of the passage in the source's text, not included."""
    at: int
    """Beginning of the passage in the answer's text."""
    to: int
    """End of the passage in the answer's text, not included."""


class Word(Struct, frozen=True):
    """A word of a text, with its position in characters."""

    key: str
    """Form in which words are compared: lower case, and one form for equal numbers."""
    start: int
    end: int
    value: bool = False
    """Whether the word is a number, an id or an address, or has a capital inside. One such word is enough for a
    passage."""
    capital: bool = False
    """Whether the word begins with a capital, in a text that is not written in capitals throughout."""
    name: bool = False
    """Whether the word begins with a capital, but not only because it is the first word of a sentence."""


class Text(Struct, frozen=True):
    """The words of a node's text, and where each of them occurs."""

    words: list[Word]
    places: dict[str, list[int]]
    """Indexes in `words` at which each word occurs, by the word's key."""
    small: set[str]
    """Keys of the words that occur somewhere in the text without a capital."""


class Texts:
    """Splits the texts of nodes into words, and keeps the words in memory for the explanations of other answers."""

    def __init__(self) -> None:
        self._kept: dict[str, Text] = {}
        self._room = KEPT

    def of(self, node: Node) -> Text:
        """Return the words of a node's text.

        The text is split only once, as long as no more than `KEPT` characters are kept.
        """
        found = self._kept.get(node.id)
        if found is None:
            found = _split(node.text)
            self._room -= len(node.text)
            if self._room >= 0:
                self._kept[node.id] = found
        return found


class Known(Struct, frozen=True):
    """Facts about words: in how many sources each of them occurs, and which of them cannot be names."""

    held: Counter[str]
    """Number of sources that contain each word."""
    small: set[str]
    """Words that occur somewhere without a capital, so that they are not names."""


def drawn(found: Explanation, texts: Texts | None = None) -> tuple[Drawn, ...]:
    """Return the passages of an explained answer that repeat its sources, in the order of the answer's text.

    Args:
        texts: the words of nodes of earlier explanations. The words of the nodes of this explanation are added.

    Cost: linear in the length of the sources, and in the answer's length times their number. The passages that were
    found are compared with each other.
    """
    texts = texts if texts is not None else Texts()
    target = found.nodes[-1]
    sources = [(node, texts.of(node)) for node in found.nodes[:-1] if node.type in SOURCES]
    said = _split(target.text)
    held = Counter(key for _, text in sources for key in text.places)
    small = said.small.union(*(text.small for _, text in sources))
    own = _own_turn(found)
    runs = [run for node, text in sources for run in _runs(said.words, text, node, Known(held, small))]
    texts_of = {node.id: node.text for node, _ in sources}
    whole = (_whole(each, texts_of[each.id], target.text) for each in _nearest(runs, own))
    return tuple(sorted(whole, key=lambda each: (each.at, each.id)))


def narrowed(found: Explanation, passages: Sequence[Drawn]) -> set[str]:
    """Return the ids of the nodes to show in a short explanation of an answer.

    These are the answer, its questions, the sources of the repeated passages, the calls that led to them, and the
    instructions of each run in which one of these is. The model reply that the answer was taken from is also included,
    and so are decisions in the answer's own turn.

    Args:
        passages: what `drawn` returned for the explanation.
    """
    nodes, own = {node.id: node for node in found.nodes}, _own_turn(found)
    kept = {found.nodes[-1].id, *found.questions, *(each.id for each in passages)}
    kept |= {id for id in own if nodes[id].type in ("Approval", "Resolution", "PatternDecision")}
    kept |= {id for id in found.nodes[-1].derived_from if id in nodes and nodes[id].type == "Analysis"}
    for id in list(kept):
        left = [id] if id in nodes and nodes[id].type not in ("Question", "Conclusion") else []
        while left:
            for above in nodes[left.pop()].derived_from:
                if above in nodes and above not in kept and nodes[above].type in ("ToolUse", "Approval", "Resolution"):
                    kept.add(above)
                    left.append(above)
    kept &= set(nodes)
    runs = {nodes[id].run for id in kept}
    return kept | {node.id for node in found.nodes if node.type == "Instructions" and node.run in runs}


def words(text: str) -> list[Word]:
    """Return the words of a text, in order. The text is read up to `LONGEST` characters."""
    found, begins = [], True
    shouted = _shouted(text[:LONGEST])
    for match in WORD.finditer(text, 0, LONGEST):
        word, start, end = match[0], match.start(), match.end()
        number = word[0].isdigit()
        inside = any(each.isupper() for each in word[1:]) and any(each.islower() for each in word)
        marked = any(each.isdigit() or each in "@_" for each in word) or (inside and not _common(word.lower()))
        quoted = text[start - 1 : start] in QUOTES if start else False
        capital = word[0].isupper() and not shouted
        name = capital and (not begins or quoted or word.isupper())
        key = _number(word) if number else word.lower()
        found.append(Word(key, start, end, marked and len(word) > 1, capital, name and len(word) > 1))
        begins = text[end : end + 1] in ".!?:\n" or text[end : end + 2] in ('."', '!"', '?"')
    return found


def _shouted(text: str) -> bool:
    """Return whether a text is in capitals: most of its letters are, and it has common words such as "THE"."""
    upper, lower = sum(each.isupper() for each in text), sum(each.islower() for each in text)
    return upper > 2 * lower and any(len(word) > 1 and _common(word.lower()) for word in WORD.findall(text))


def _common(key: str) -> bool:
    """Return whether a word (`key`, in lower case) is too frequent to identify a source."""
    return re.split("['\u2019]", key, maxsplit=1)[0] in COMMON_WORDS


def _number(word: str) -> str:
    """Return a number in one form, so that equal numbers have the same text: 64.9 and 64.90, 1,000 and 1000.

    Dates and versions are returned unchanged.
    """
    plain = word.replace(",", "") if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", word) else word
    try:
        return str(Decimal(plain).normalize())
    except InvalidOperation:  # not a number but a date, a time or a version
        return word


def _own_turn(found: Explanation) -> set[str]:
    """Return the ids of the nodes in the answer's own turn, and of all nodes in other runs."""
    target = found.nodes[-1]
    first = min((node.seq for node in found.nodes if node.id in found.questions), default=0)
    return {node.id for node in found.nodes if node.run != target.run or node.seq >= first}


def _split(text: str) -> Text:
    """Return the words of a text, and where each of them occurs."""
    found = words(text)
    places: dict[str, list[int]] = {}
    for place, word in enumerate(found):
        places.setdefault(word.key, []).append(place)
    return Text(found, places, {word.key for word in found if not word.capital})


def _runs(said: list[Word], text: Text, node: Node, known: Known) -> Iterator[Drawn]:
    """Yield the longest sequences of words that an answer shares with a source, as passages.

    Sequences that both `_names` and `_tells` reject are left out.

    Args:
        said: words of the answer.
        text: words of the source.
        node: the source.
    """
    told, places = text.words, text.places
    here = 0
    while here < len(said):
        longest, where = 0, 0
        for place in places.get(said[here].key, ())[:50]:
            length = 1
            while (
                here + length < len(said)
                and place + length < len(told)
                and said[here + length].key == told[place + length].key
            ):
                length += 1
            if length > longest:
                longest, where = length, place
        run = said[here : here + longest]
        few = {"Instructions": False, "Question": longest > 1}.get(node.type, True)
        there = told[where : where + longest]
        if longest and (_names(run, there, known) or _tells(run, known.held, alone=few)):
            yield Drawn(node.id, there[0].start, there[-1].end, run[0].start, run[-1].end)
        here += max(longest, 1)


def _whole(found: Drawn, source: str, answer: str) -> Drawn:
    """Return a passage with the quotation marks next to it, in both texts, if there are others inside.

    So a passage of JSON is `"paid": 50`, and not `paid": 50`.
    """
    start, end = _quoted(source, found.start, found.end)
    return Drawn(found.id, start, end, *_quoted(answer, found.at, found.to))


def _quoted(text: str, start: int, end: int) -> tuple[int, int]:
    if '"' in text[start:end]:
        start -= next((len(mark) for mark in ('\\"', '"') if text.endswith(mark, 0, start)), 0)
        end += next((len(mark) for mark in ('\\"', '"') if text.startswith(mark, end)), 0)
    return start, end


def _names(run: list[Word], there: list[Word], known: Known) -> bool:
    """Return whether one of the shared words is a value, such as a number, or is a name in both texts.

    Args:
        run: the shared words as they are in the answer.
        there: the same words as they are in the source.
        known: says which words cannot be names.
    """
    return any(
        here.value
        or other.value
        or (here.capital and other.capital and (here.name or other.name) and _is_name(here.key, known.small))
        for here, other in zip(run, there, strict=True)
    )


def _is_name(key: str, small: set[str]) -> bool:
    return key not in small and not _common(key)


def _tells(run: list[Word], held: Counter[str], *, alone: bool) -> bool:
    """Return whether shared words identify a source: at least `WORDS` words, of which one is not too frequent.

    Args:
        run: the shared words.
        held: number of sources that contain each word.
        alone: whether one word of at least `ALONE` letters is enough, if only one source contains it.
    """
    content = [word for word in run if len(word.key) >= LETTERS and not _common(word.key)]
    if len(run) >= WORDS and content:
        return True
    return alone and any(len(word.key) >= ALONE and held[word.key] == 1 for word in content)


def _nearest(runs: Iterable[Drawn], own: set[str]) -> Iterator[Drawn]:
    """Yield the passages, but leave out each passage that overlaps a longer one.

    Of overlapping passages of equal length, yield the first, and those from the nodes in `own`.

    Args:
        runs: passages of the answer that were found in its sources.
        own: ids of the nodes in the answer's own turn.
    """
    every = sorted(runs, key=lambda each: each.at - each.to)  # the longest first; equal ones stay in order
    kept: list[Drawn] = []
    for each in every:
        over = [other for other in kept if other.at < each.to and each.at < other.to]
        longer = any(other.to - other.at > each.to - each.at for other in over)
        if longer or (over and each.id not in own):
            continue
        kept.append(each)
    yield from kept
