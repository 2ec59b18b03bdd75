// Computes the horizontal place of a time in a picture. Pauses are shortened, so that work stays visible beside long waits.
import { took } from "./dom.js";

/** Return bars with `from` and `to` in milliseconds. A bar without an end gets the latest time of all bars. */
export function timed(bars) {
  const now = bars.reduce((last, bar) => Math.max(last, Date.parse(bar.end ?? bar.start)), 0);
  return bars.map((bar) => ({ ...bar, from: Date.parse(bar.start), to: bar.end ? Date.parse(bar.end) : now }));
}

/** Return whether the times differ, so that a picture of them makes sense. */
export const hasTimes = (bars) => bars.some((bar) => bar.to !== bars[0].from || bar.from !== bars[0].from);

/** Return a function from a time to its place between `left` and `left + width`, with its `parts` and the `total` of work.
 * `frames`: the turns; if most bars are instants, the whole of each turn counts as work. */
export function scale(bars, frames, { left, width, pause: most }) {
  const work_ = bars.filter((each) => each.lane === "model" || each.lane === "tools");
  const instants = work_.filter((each) => each.from === each.to).length;
  const base = work_.length && instants * 2 <= work_.length ? work_ : frames.length ? frames : bars;
  const busy = together(base, 1);
  const total = sum(busy) || 1;
  // A pause that is longer than a tenth of the work is shortened; shorter pauses keep their length.
  const parts = together(busy, total / 10), work = sum(parts) || 1;
  const pause = Math.min(most, width / 3 / parts.length);
  const unit = (width - pause * (parts.length - 1)) / work;
  let x = left;
  for (const each of parts) { each.x = x; each.width = (each.to - each.from) * unit; x += each.width + pause; }
  const place = (at) => {
    let low = 0, high = parts.length - 1;
    while (low < high) { const middle = Math.ceil((low + high) / 2); if (at >= parts[middle].from) low = middle; else high = middle - 1; }
    const found = parts[low], next = parts[low + 1];
    if (at <= found.to) return Math.max(left, found.x + Math.max(at - found.from, 0) * unit);
    const after = next ? pause * Math.min(1, (at - found.to) / Math.max(next.from - found.to, 1)) : 0;
    return found.x + found.width + after;
  };
  return Object.assign(place, { parts, total: work });
}

/** Return how long at least one of some bars was at work, in milliseconds. */
export const filled = (bars) => sum(together(bars, 0));

const sum = (parts) => parts.reduce((all, each) => all + (each.to - each.from), 0);

/** Return the stretches of time that bars cover; gaps up to `gap` count as covered. */
function together(bars, gap) {
  const found = [];
  for (const bar of bars.toSorted((a, b) => a.from - b.from)) {
    const last = found.at(-1);
    if (last && bar.from <= last.to + gap) last.to = Math.max(last.to, bar.to);
    else found.push({ from: bar.from, to: bar.to });
  }
  return found;
}

const TONES = new Set(["settled", "fault"]);
/** Return the CSS class of a bar: its lane or its outcome; for a span, its role. */
export function toned(bar) {
  if (bar.lane === "span") return { model: "model", tool: "tools" }[bar.role] ?? "span";
  if (bar.tone === "lost") return "fault";
  return TONES.has(bar.tone) && bar.lane !== "turn" ? bar.tone : bar.lane;
}

/** Return the duration of a bar in words, and where it was measured. */
export function length(bar) {
  if (bar.from === bar.to) return bar.lane === "model" || bar.lane === "tools" ? "an instant: its source noted one time" : "";
  return `${took(bar.to - bar.from)}${bar.said ? ", as its source says" : ""}${bar.end ? "" : ", not ended"}`;
}
