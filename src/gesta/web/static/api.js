// The data of the pages. Every address is one that `gesta view` answers.

export class Failed extends Error {}

async function get(path, word) {
  const sent = word === undefined ? {} : { method: "POST", body: JSON.stringify(word) };
  let answer;
  try { answer = await fetch(path, { headers: { accept: "application/json", ...(word === undefined ? {} : { "content-type": "application/json" }) }, ...sent }); }
  catch { throw new Failed("The viewer does not answer. Is `gesta view` still running?"); }
  const type = answer.headers.get("content-type") ?? "";
  if (!type.includes("json")) throw new Failed((await answer.text()).slice(0, 400));
  const body = await answer.json();
  if (!answer.ok) throw new Failed(body.error?.message ?? answer.statusText);
  return body;
}

const query = (facts) => new URLSearchParams(Object.entries(facts).filter(([, value]) => value)).toString();
const run = (record, id) => `/api/${record}/runs/${encodeURIComponent(id)}`;

export const records = () => get("/api/records");
export const sessions = (record, wanted) => get(`/api/${record}/sessions?${query(wanted)}`);
export const glance = (record, id) => get(run(record, id));
export const lines = (record, id, after, limit) => get(`${run(record, id)}/lines?after=${after}&limit=${limit}`);
export const why = (record, id, seq) => get(`${run(record, id)}/why?${query({ entry: seq })}`);
export const waiting = (record) => get(`/api/${record}/waiting`);
export const answer = (record, word) => get(`/api/${record}/answer`, word);
export const graph = (record, id, seq, facts) => get(`${run(record, id)}/graph?${query({ entry: seq, ...facts })}`);
export const entry = (record, id, seq) => get(`${run(record, id)}/entries/${seq}`);
/** Follow what is new: the lines of a run, or the runs that changed. The browser comes back by itself, where it was.
 * `connected(state)` is told "open", "lost" while the browser tries again, and "closed" once the viewer refused it. */
export function follow(record, facts, name, hear, connected) {
  const source = new EventSource(`/api/${record}/follow?${query(facts)}`);
  source.addEventListener(name, (event) => hear(JSON.parse(event.data)));
  source.addEventListener("open", () => connected("open"));
  source.addEventListener("error", () => connected(source.readyState === EventSource.CLOSED ? "closed" : "lost"));
  return () => source.close();
}
