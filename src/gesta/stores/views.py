"""The views over the tables of a record: sessions, exchanges, tool calls, costs, doubts, spans.

A record is the stored history of all runs (conversations of agents). A session is a conversation, and an exchange is a
request to a model with its reply. A doubt is a tool call that may or may not have had its effect. A span is a named
part of a run, from its `begin` to its `end`. Every new record has the views. They hold no data, so changing a view does
not change the format number. If a record lacks them, or has the views of another release, `tables.ask` makes temporary
views for the query.
"""

from gesta.stores.counted import READ, USAGE, WROTE

_MERGED = """CASE WHEN {own} IS NULL THEN {over} WHEN {over} IS NULL THEN {own} ELSE (
        SELECT json_group_object(key, CASE
            WHEN type IN ('object', 'array') THEN json(value) WHEN type IN ('true', 'false') THEN json(type)
            ELSE value END)
        FROM (SELECT key, type, value FROM json_each({over})
            WHERE NOT EXISTS (SELECT 1 FROM json_each({own}) AS mine WHERE mine.key = json_each.key)
            UNION ALL SELECT key, type, value FROM json_each({own}))) END"""
"""SQL for the annotations of an entry (`own`) together with those of its span (`over`). If both have a value for a key,
the entry's own value is kept."""

_NOTES = _MERGED.format(own="{e}.annotations", over="{s}.annotations")
_WHOLE = f"""json_object('identifier', {{e}}.run || '.' || {{e}}.seq,
        'span', json_object('session', {{s}}.session, 'name', json({{s}}.path)), 'timestamp', {{e}}.at,
        'content', json({{e}}.content), 'annotations', json({_NOTES}))"""
"""SQL for an entry as one JSON object, with the names of agent-catalog for its members."""

_PAIRS = """open_{way} AS (
    SELECT w.*, sum(2 * w.calls - 1) OVER (PARTITION BY w.run, w.{key} ORDER BY w.seq) AS height
    FROM work AS w LEFT JOIN {taken} AS taken ON taken.run = w.run AND taken.call = w.seq
    WHERE taken.run IS NULL AND w.call IS NULL AND (w.calls OR {given}) AND w.{key} IS NOT NULL
),
queued_{way} AS (
    SELECT *, row_number() OVER (PARTITION BY run, {key}, calls ORDER BY seq) AS place
    FROM (SELECT *, min(height) OVER (PARTITION BY run, {key} ORDER BY seq
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS floor FROM open_{way})
    WHERE calls OR height >= min(coalesce(floor, 0), 0)
),
by_{way} AS MATERIALIZED (
    SELECT run, min(seq) AS call, max(seq) AS result, 1 AS results, '{way}' AS paired
    FROM queued_{way} GROUP BY run, {key}, place HAVING count(*) = 2
)"""
"""SQL that pairs tool calls with results in their order: the n-th result belongs to the n-th call. A result without a
call before it is left out."""
_BY_ID = _PAIRS.format(way="id", key="id", given="true", taken="by_call")
_BY_ORDER = _PAIRS.format(
    way="order", key="span", given="w.id IS NULL", taken="(SELECT * FROM by_call UNION ALL SELECT * FROM by_id)"
)

_ANSWERED = f"""answered AS MATERIALIZED (
    SELECT run, request, CAST({READ} AS INTEGER) AS tokens_in, CAST({WROTE} AS INTEGER) AS tokens_out
    FROM (SELECT r.run, r.request, {USAGE} AS usage
        FROM asked AS r JOIN entries AS c ON c.run = r.run AND c.seq = r.seq
        WHERE r.kind = 'chat-completion') AS replies
)"""  # noqa: S608 - constants

VIEWS = f"""
CREATE VIEW IF NOT EXISTS spans AS
WITH RECURSIVE begun AS MATERIALIZED (
    SELECT run, seq AS span, at, coalesce(json_extract(content, '$.name'), '') AS name,
        json_extract(content, '$.role') AS role, CAST(json_extract(content, '$.parent') AS INTEGER) AS parent,
        json_extract(content, '$.annotations') AS annotations, json_extract(content, '$.agent') AS agent
    FROM entries WHERE likelihood(kind = 'begin', 0.9)
),
tree AS (
    SELECT *, json_array(name) AS path, name AS root FROM begun WHERE likelihood(parent IS NULL, 0.9)
    UNION ALL
    SELECT begun.run, begun.span, begun.at, begun.name, begun.role, begun.parent,
        {_MERGED.format(own="begun.annotations", over="tree.annotations")},
        begun.agent, json_insert(tree.path, '$[#]', begun.name), tree.root
    FROM tree JOIN begun ON begun.run = tree.run AND begun.parent = tree.span
),
ended AS MATERIALIZED (
    SELECT run, span, min(seq) AS seq, at, coalesce(json_extract(content, '$.status'), 'success') AS status,
        json_extract(content, '$.reason') AS reason
    FROM entries WHERE likelihood(kind = 'end', 0.9) GROUP BY run, span
)
SELECT runs.session, tree.run, tree.span, path, root, tree.name, role, parent, agent, annotations,
    tree.at AS start_t, ended.at AS end_t, status, reason
FROM tree
LEFT JOIN (SELECT run, session FROM runs) AS runs ON runs.run = tree.run
LEFT JOIN ended ON ended.run = tree.run AND ended.span = tree.span;

CREATE VIEW IF NOT EXISTS sessions AS
WITH every AS MATERIALIZED (
    SELECT session, min(pos) AS pos, max(last_at) AS end_t, count(*) AS runs, sum(head) AS entries
    FROM runs GROUP BY session
),
named AS MATERIALIZED (
    SELECT session, json_object('identifier', json_extract(agent, '$.digest'), 'timestamp', min(start_t)) AS cid
    FROM spans WHERE agent IS NOT NULL GROUP BY session
),
noted AS MATERIALIZED (
    SELECT session, json_group_array(json_object('name', json(path), 'annotations', json(annotations))) AS ann
    FROM (SELECT session, path, annotations, min(start_t) AS at FROM spans
        WHERE annotations IS NOT NULL GROUP BY session, path, annotations ORDER BY at)
    GROUP BY session
)
SELECT every.session AS sid, named.cid, json_extract(opening.content, '$.opened.name') AS root,
    opening.at AS start_t, end_t, runs, every.entries,
    (SELECT json_group_array(json_object('event', json(event), 'timestamp', at, 'name', json(path),
        'annotations', json(notes), 'seq_num', number))
    FROM (SELECT e.content AS event, e.at, s.path, {_NOTES.format(e="e", s="s")} AS notes,
            row_number() OVER (ORDER BY e.pos) AS number
        FROM (SELECT run, session FROM runs) AS r
        CROSS JOIN entries AS e ON e.run = r.run
        LEFT JOIN spans AS s ON s.run = e.run AND s.span = e.span
        WHERE r.session = every.session ORDER BY e.pos)) AS content,
    coalesce(noted.ann, '[]') AS ann
FROM every
CROSS JOIN entries AS opening ON opening.pos = every.pos
LEFT JOIN named ON named.session = every.session
LEFT JOIN noted ON noted.session = every.session
ORDER BY opening.at, every.pos;

CREATE VIEW IF NOT EXISTS last_session AS
SELECT session AS sid FROM runs ORDER BY last_at DESC, pos DESC LIMIT 1;

CREATE VIEW IF NOT EXISTS exchanges AS
WITH talk AS (
    SELECT run, seq, kind,
        kind = 'user' AND (lag(kind) OVER told IS NOT 'user' OR lag(span) OVER told <> span) AS opens
    FROM entries WHERE likelihood(kind IN ('user', 'assistant'), 0.9)
    WINDOW told AS (PARTITION BY run ORDER BY seq)
),
numbered AS (SELECT run, seq, kind, sum(opens) OVER (PARTITION BY run ORDER BY seq) AS number FROM talk),
gathered AS (
    SELECT run, seq, row_number() OVER one AS place, max(seq) OVER one AS last,
        min(seq) FILTER (WHERE kind = 'user') OVER one AS input,
        min(seq) FILTER (WHERE kind = 'assistant') OVER one AS output,
        json_group_array(seq) FILTER (WHERE kind = 'user') OVER one AS inputs,
        json_group_array(seq) FILTER (WHERE kind = 'assistant') OVER one AS outputs
    FROM numbered
    WINDOW one AS (PARTITION BY run, number ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
),
bounded AS (
    SELECT *, CASE WHEN output IS NULL
        THEN lead(seq, 1, 1 << 62) OVER (PARTITION BY run ORDER BY seq) - 1 ELSE last END AS until
    FROM gathered WHERE place = 1
),
found AS MATERIALIZED (SELECT * FROM bounded UNION ALL SELECT * FROM bounded WHERE run IS NULL)
SELECT s.session AS sid, s.root,
    CASE WHEN x.input > 0 THEN {_WHOLE.format(e="f", s="s")} END AS input,
    CASE WHEN x.output > 0 THEN {_WHOLE.format(e="o", s="os")} END AS output,
    (SELECT json_group_array(json(told)) FROM (
        SELECT {_WHOLE.format(e="e", s="es")} AS told
        FROM entries AS e LEFT JOIN spans AS es ON es.run = e.run AND es.span = e.span
        WHERE e.run = x.run AND e.seq BETWEEN x.seq AND x.until ORDER BY e.seq)
    ) AS content,
    x.run, x.seq, inputs, outputs, f.at AS start_t, o.at AS end_t
FROM entries AS f
LEFT JOIN found AS x ON x.run = f.run AND x.seq = f.seq
LEFT JOIN entries AS o ON o.run = x.run AND o.seq = x.output
LEFT JOIN spans AS s ON s.run = f.run AND s.span = f.span
LEFT JOIN spans AS os ON os.run = o.run AND os.span = o.span
WHERE f.kind IN ('user', 'assistant') AND coalesce(x.seq, 0) > 0 ORDER BY f.pos;

CREATE VIEW IF NOT EXISTS tool_invocations AS
WITH work AS MATERIALIZED (
    SELECT run, seq, span, kind = 'tool-call' AS calls, json_extract(content, '$.call') AS call,
        json_extract(content, '$.tool_call_id') AS id
    FROM entries WHERE likelihood(kind IN ('tool-call', 'tool-result'), 0.9)
),
by_call AS MATERIALIZED (
    SELECT c.run AS run, c.seq AS call, min(r.seq) AS result, count(*) AS results, 'call' AS paired
    FROM work AS r JOIN work AS c ON c.run = r.run AND c.seq = r.call
    WHERE NOT r.calls AND c.calls GROUP BY c.run, c.seq
),
{_BY_ID},
{_BY_ORDER},
pairs AS MATERIALIZED (SELECT * FROM by_call UNION ALL SELECT * FROM by_id UNION ALL SELECT * FROM by_order)
SELECT s.session AS sid, s.root, {_WHOLE.format(e="c", s="s")} AS tool_call,
    CASE WHEN r.seq > 0 THEN {_WHOLE.format(e="r", s="rs")} END AS tool_result,
    c.run, c.seq AS call, r.seq AS result, coalesce(p.results, 0) AS results, p.paired,
    json_extract(c.content, '$.tool_name') AS tool_name,
    CASE WHEN r.seq > 0 THEN coalesce(json_extract(r.content, '$.status'), 'success') END AS status,
    json_extract(r.content, '$.outcome') AS outcome, c.at AS start_t, r.at AS end_t
FROM entries AS c
LEFT JOIN pairs AS p ON p.run = c.run AND p.call = c.seq
LEFT JOIN entries AS r ON r.run = p.run AND r.seq = p.result
LEFT JOIN spans AS s ON s.run = c.run AND s.span = c.span
LEFT JOIN spans AS rs ON rs.run = r.run AND rs.span = r.span
WHERE c.kind = 'tool-call' ORDER BY c.pos;

CREATE VIEW IF NOT EXISTS costs AS
WITH asked AS MATERIALIZED (
    SELECT run, seq, kind, CAST(json_extract(content, '$.header') AS INTEGER) AS header,
        max(seq) FILTER (WHERE kind = 'begin') OVER so_far AS turn,
        max(seq) FILTER (WHERE kind = 'request') OVER so_far AS request
    FROM entries WHERE likelihood(kind IN ('request', 'chat-completion', 'begin'), 0.9)
        AND (kind <> 'begin' OR json_extract(content, '$.role') = 'turn')
    WINDOW so_far AS (PARTITION BY run ORDER BY seq)
),
{_ANSWERED},
settled AS MATERIALIZED (
    SELECT run, CAST(json_extract(content, '$.of') AS INTEGER) AS request,
        CAST(json_extract(content, '$.spent.usd') AS DOUBLE PRECISION) AS usd,
        json_extract(content, '$.spent.prices') AS prices, at
    FROM entries WHERE likelihood(kind = 'budget', 0.9) AND json_extract(content, '$.spent') IS NOT NULL
)
SELECT q.run, q.turn, q.seq AS request, json_extract(h.content, '$.meta.model') AS model,
    tokens_in, tokens_out, s.usd, s.prices, CASE WHEN s.usd IS NOT NULL THEN s.at END AS priced_at
FROM asked AS q
LEFT JOIN entries AS h ON h.run = q.run AND h.seq = q.header
LEFT JOIN answered AS a ON a.run = q.run AND a.request = q.seq
LEFT JOIN settled AS s ON s.run = q.run AND s.request = q.seq
WHERE q.kind = 'request' ORDER BY q.run, q.seq;

CREATE VIEW IF NOT EXISTS doubts AS
SELECT a.run, c.seq AS call, json_extract(c.content, '$.tool_name') AS tool, a.seq AS attempt, a.at FROM entries AS a
JOIN entries AS c ON c.run = a.run AND c.seq = CAST(json_extract(a.content, '$.of') AS INTEGER)
WHERE a.kind = 'attempt'
AND CASE a.version WHEN 1 THEN json_extract(a.content, '$.extra.effect') ELSE json_extract(a.content, '$.effect') END
    = 'once'
AND NOT EXISTS (
    SELECT 1 FROM entries o WHERE o.run = a.run AND o.seq > a.seq AND o.kind IN ('tool-result', 'resolution', 'attempt')
   AND CAST(coalesce(json_extract(o.content, '$.of'), json_extract(o.content, '$.call')) AS INTEGER) IN (c.seq, a.seq));
"""  # noqa: S608 - constants
"""The SQL of the views. A view is computed anew for each query, in passes over all entries and a sort.

`likelihood`, LEFT JOIN and UNION ALL make SQLite expect many rows, so that it makes an index for each join."""

EACH = {text.split(maxsplit=6)[5]: text for text in map(str.strip, VIEWS.split(";\n")) if text}
"""The SQL of each view, by the name of the view."""

_JOINED, _ASKED = (
    EACH["doubts"].split("\nAND NOT EXISTS")[0].split("\nAND ")[0],
    "json_extract(a.content, '$.extra.effect')",
)
_OLD_ANSWERED = """answered AS MATERIALIZED (
    SELECT r.run, r.request,
        CAST(coalesce(json_extract(content, '$.usage.prompt_tokens'),
            json_extract(content, '$.usage.input_tokens')) AS INTEGER) AS tokens_in,
        CAST(coalesce(json_extract(content, '$.usage.completion_tokens'),
            json_extract(content, '$.usage.output_tokens')) AS INTEGER) AS tokens_out
    FROM asked AS r JOIN entries AS c ON c.run = r.run AND c.seq = r.seq
    WHERE r.kind = 'chat-completion'
)"""
_OLD_COSTS = EACH["costs"].replace(_ANSWERED, _OLD_ANSWERED)
OLDER = f"{_OLD_COSTS};\n{_JOINED} AND {_ASKED} = 'once' AND NOT EXISTS{EACH['doubts'].split('AND NOT EXISTS')[1]}"
"""Views of earlier releases that differ from those of this release: `costs` and `doubts` of 0.1.0."""
