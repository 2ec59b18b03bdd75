// The requests for the data of the pages. Every address is one that `gesta view` answers.

import { follow as followed, get, href } from "./source.js";
export { Failed } from "./source.js";

const query = (facts) => new URLSearchParams(Object.entries(facts).filter(([, value]) => value)).toString();
const run = (record, id) => `/api/${record}/runs/${encodeURIComponent(id)}`;

export const records = () => get("/api/records");
export const sessions = (record, wanted) => get(`${record === "all" ? "/api/sessions" : `/api/${record}/sessions`}?${query(wanted)}`);
export const glance = (record, id) => get(run(record, id));
export const lines = (record, id, after, limit) => get(`${run(record, id)}/lines?after=${after}&limit=${limit}`);
export const time = (record, id) => get(`${run(record, id)}/time`);
export const children = (record, id, after) => get(`${run(record, id)}/children?${query({ after })}`);
export const why = (record, id, seq) => get(`${run(record, id)}/why?${query({ entry: seq })}`);
export const waiting = (record) => get(`/api/${record}/waiting`);
export const answer = (record, word) => get(`/api/${record}/answer`, word);
export const graph = (record, id, seq, facts) => get(`${run(record, id)}/graph?${query({ entry: seq, ...facts })}`);
const sent = (record, id, seq, way) => (path = "", facts = {}) => `${run(record, id)}/requests/${seq}${path}?${query({ ...way, ...facts })}`;
export const requests = (record, id, after) => get(`${run(record, id)}/requests?${query({ after })}`);
export const request = (record, id, seq, way) => get(sent(record, id, seq, way)());
export const sentPart = (record, id, seq, way) => (path, facts) => get(sent(record, id, seq, way)(path, facts));
export const sentBody = (record, id, seq, way) => sent(record, id, seq, way)("/body");
export const ways = (record) => get(`/api/${record}/ways`);
const form = (record, id, name) => `${run(record, id)}/forms/${encodeURIComponent(name)}`;
export const formRows = (record, id, name, facts) => get(`${form(record, id, name)}?${query(facts)}`);
export const formRow = (record, id, name, place, facts) => get(`${form(record, id, name)}/rows/${place}?${query(facts)}`);
export const formLines = (record, id, name, entry) => `${form(record, id, name)}/lines?${query({ entry })}`;
export const evidence = (record, id) => get(`${run(record, id)}/evidence`);
export const evidenceOf = (record) => get(`/api/${record}/evidence`);
export const check = (record, word) => get(`/api/${record}/evidence`, word);
/** Return the address of a file with the heads of all runs. */
export const headsFile = (record) => href(`/api/${record}/heads`);
export const entry = (record, id, seq) => get(`${run(record, id)}/entries/${seq}`);
/** Return the address of an image or file of an entry. */
export const file = (record, id, seq, place) => href(`${run(record, id)}/entries/${seq}/files/${place}`);
/** Follow the lines of a run, or the runs that changed; see source.js. */
export const follow = (record, facts, name, hear, connected) => followed(`/api/${record}/follow?${query(facts)}`, name, hear, connected);
