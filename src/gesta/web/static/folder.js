// The data of a folder that `gesta view --export` wrote: files of script, loaded as they are asked for, and no server.
// The address of a page is the query of index.html: `index.html?/r/0/run/ID&all=1#34`.

export class Failed extends Error {}

const answers = new Map(), PLAIN = /^[a-z0-9.-]+$/;
globalThis.gestaData = (name, text) => answers.set(name, JSON.parse(text)); // what each file of data calls
const script = document.currentScript;
const kept = (name) => { if (!answers.has(name)) throw new Failed(`The file ${name}.js is not in this folder.`); return answers.get(name); };

/** Load a file of data, once. */
const loading = new Map();
function load(name) {
  if (!loading.has(name)) {
    loading.set(name, new Promise((done) => {
      const element = document.createElement("script");
      element.addEventListener("load", () => { element.remove(); done(); });
      element.addEventListener("error", () => { element.remove(); loading.delete(name); done(); });
      element.src = new URL(`data/${name}.js`, script.src).href;
      document.head.append(element);
    }));
  }
  return loading.get(name);
}

/** Facts about the copy: when it was made, of what, and which runs it holds. */
export const copy = JSON.parse(script.dataset.copy);
const MISSING = "This copy does not hold that. Open the record with `gesta view`.";

export async function get(address, word) {
  const [where, facts] = address.split("?"), asked = new URLSearchParams(facts), parts = where.split("/").slice(3).map(decodeURIComponent);
  if (word !== undefined) throw new Failed("This is a copy: nothing can be changed here.");
  if (where === "/api/records") return [copy.about];
  if (parts[0] === "waiting") { await load("waiting"); return kept("waiting"); }
  const place = copy.runs.indexOf(parts[1]);
  if (parts[0] !== "runs" || place < 0) throw new Failed(MISSING);
  const rest = parts.slice(2);
  if (rest[0] === "lines") return lines(place, Number(asked.get("after")), Number(asked.get("limit")));
  asked.sort();
  const name = [place, ...(rest.length ? rest : ["run"]), ...[...asked].filter(([, value]) => value !== "").flat()].join("-");
  if (!PLAIN.test(name)) throw new Failed(MISSING);
  await load(name);
  if (!answers.has(name)) throw new Failed(MISSING);
  return structuredClone(kept(name));
}

/** Return the lines after an entry, from the files that hold them. */
async function lines(place, after, limit) {
  const found = [], first = Math.floor(after / copy.page);
  for (let page = first; found.length < limit && page * copy.page < copy.heads[place]; page += 1) {
    const name = `${place}-lines-${page}`;
    await load(name);
    found.push(...kept(name).filter((line) => line.seq > after));
  }
  return found.slice(0, limit);
}

/** Nothing comes: a copy stays as it is. */
export function follow() { return () => {}; }

const parts = () => location.search.slice(1).split("&");
/** Return the path of the page; that of a list of sessions is that of the first run. */
export const path = () => (/^\/r\/0\/\w/.test(parts()[0]) ? parts()[0] : `/r/0/run/${encodeURIComponent(copy.runs[0])}`);
export const query = () => new URLSearchParams(parts().slice(1).join("&"));
export const href = (address) => (address.startsWith("/r/") ? `?${address.replace("?", "&")}` : address);
