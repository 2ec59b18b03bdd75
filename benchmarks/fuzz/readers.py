"""The readers: every way in which Gesta reads data that others made."""

from benchmarks.fuzz.campaign import Reader
from benchmarks.fuzz.imports import Files, imported
from benchmarks.fuzz.lines import typed
from benchmarks.fuzz.records import Samples, bytes_, cells
from benchmarks.fuzz.serving import Server, served
from benchmarks.fuzz.streams import cut_anywhere
from benchmarks.fuzz.texts import Texts, text

READERS = (
    Reader("record-cells", "a record with odd cells, by every command", 20, Samples, cells, (OSError,)),
    Reader("record-bytes", "a record with changed bytes, by every command", 14, Samples, bytes_, (OSError,)),
    Reader("imports", "a file of every format", 16, Files, imported),
    Reader("streams", "a reply in every dialect, cut anywhere", 24, lambda folder: folder, cut_anywhere),
    Reader("texts", "JSON of others, cases, agents' files, addresses, what models say", 16, Texts, text),
    Reader("server", "a hostile server, by a whole turn", 5, Server, served),
    Reader("lines", "command lines", 5, Samples, typed),
)
