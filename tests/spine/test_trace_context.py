"""The header `traceparent`: what is read as one, and what ids are made of."""

import pytest

from gesta.text.tracing import TraceContext, span_id, trace_context, trace_id

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067440a9902b7"


@pytest.mark.parametrize(
    ("header", "read"),
    [
        (f"00-{TRACE}-{SPAN}-01", TraceContext(TRACE, SPAN)),
        (f" 00-{TRACE}-{SPAN}-00 ", TraceContext(TRACE, SPAN, sampled=False)),
        (f"00-{TRACE}-{SPAN}-ff", TraceContext(TRACE, SPAN)),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", TraceContext(TRACE, SPAN)),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}", None),
        ("", None),
        (None, None),
    ],
)
def test_a_header_is_read_as_the_recommendation_says(header: str | None, read: TraceContext | None) -> None:
    assert trace_context(header) == read


def test_a_context_is_written_as_it_is_read() -> None:
    for sampled in (True, False):
        context = TraceContext(TRACE, SPAN, sampled)
        assert trace_context(str(context)) == context


def test_ids_follow_from_run_and_seq_and_are_never_zero_or_shared() -> None:
    assert trace_id("run", 1) == trace_id("run", 1) == "facea72ad79b9ed6a50a2952ab4f60d5"
    ids = {span_id(run, seq) for run in ("a", "a1", "b") for seq in range(1, 100)}
    assert len(ids) == 3 * 99
    assert trace_context(str(TraceContext(trace_id("run", 1), span_id("run", 1)))) is not None
