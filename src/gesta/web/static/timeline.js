// The time of a run in four lanes. Pauses between turns are shortened, so that work stays visible beside long waits.
import { el, took } from "./dom.js";
import { hasTimes, length, scale, timed, toned } from "./scale.js";

const LANES = ["model", "tools", "waiting", "process"];
const WIDTH = 400, LEFT = 62, HEIGHT = 24, PAUSE = 10, LEAST = 2.5;

export const NO_TIMES = "No step of this run has a duration on record.";

/** Return a picture of the bars, with a frame for each of the `turns`. `go(seq)` is called for a bar that a person chose. */
export function timeline(bars, turns, go) {
  const drawn = timed(bars);
  if (!drawn.length) return el("p", { class: "quiet small" }, "Nothing took time yet.");
  if (!hasTimes(drawn)) return el("p", { class: "quiet small" }, NO_TIMES);
  const frames = timed(turns.map((turn) => ({ start: turn.at, end: turn.end ?? bars.at(-1).end ?? bars.at(-1).start })));
  const place = scale(drawn, frames, { left: LEFT, width: WIDTH - LEFT - 4, pause: PAUSE }), rows = beside(drawn);
  const height = LANES.length * HEIGHT + 20;
  const picture = el("svg:svg", { class: "time", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": spoken(drawn) });
  LANES.forEach((lane, row) => {
    const label = el("svg:text", { x: 0, y: row * HEIGHT + 15 }, lane);
    picture.append(label, el("svg:line", { class: "grid", x1: LEFT, x2: WIDTH, y1: row * HEIGHT + HEIGHT, y2: row * HEIGHT + HEIGHT }));
  });
  let free = 0; // the end of the last label
  for (const bar of drawn) {
    const row = LANES.indexOf(bar.lane), thin = bar.lane === "process";
    const x = place(bar.from), width = Math.max(LEAST, place(bar.to) - x);
    const [slot, of] = rows.get(bar) ?? [0, 1];
    const rect = el("svg:rect", {
      class: thin ? "process" : toned(bar), x, width, rx: 2,
      y: row * HEIGHT + (thin ? 9 : 4 + slot * (15 / of)), height: thin ? 4 : Math.max(2, 15 / of - 1),
      onclick: () => go(bar.of ?? bar.seq),
    });
    rect.append(el("svg:title", {}, [`${bar.lane}${bar.label ? `: ${bar.label}` : ""}`, length(bar), bar.tone].filter(Boolean).join(", ")));
    picture.append(rect);
    if (thin && bar.tone === "fault") {
      const at = Math.min(x + width + 2, WIDTH - 44), word = at > free;
      picture.append(el("svg:text", { class: "death", x: word ? at : Math.min(x + width, WIDTH - 8), y: word ? row * HEIGHT + 6 : row * HEIGHT + 22 }, word ? "✕ died" : "✕"));
      if (word) free = at + 44;
    }
  }
  const ends = el("svg:text", { x: WIDTH, y: height - 4, "text-anchor": "end" }, took(place.total));
  picture.append(el("svg:text", { x: LEFT, y: height - 4 }, "0"), ends);
  return picture;
}

/** Return for each bar its row within its lane, and the number of rows there. Bars that overlap in time are put below each other. */
function beside(bars) {
  const found = new Map();
  for (const lane of LANES.slice(0, 3)) {
    let group = [], ends = [];
    const close = () => { for (const bar of group) found.set(bar, [found.get(bar), Math.min(ends.length, 5)]); group = []; ends = []; };
    for (const bar of bars.filter((each) => each.lane === lane).sort((a, b) => a.from - b.from)) {
      if (ends.length && ends.every((end) => end <= bar.from)) close();
      let slot = ends.findIndex((end) => end <= bar.from);
      if (slot < 0) slot = ends.length;
      ends[slot] = bar.to; group.push(bar); found.set(bar, Math.min(slot, 4));
    }
    close();
  }
  return found;
}

function spoken(bars) {
  const parts = LANES.slice(0, 3).map((lane) => {
    const own = bars.filter((bar) => bar.lane === lane);
    return own.length ? `${lane} ${took(own.reduce((sum, bar) => sum + bar.to - bar.from, 0))}` : "";
  }).filter(Boolean);
  const deaths = bars.filter((bar) => bar.lane === "process" && bar.tone === "fault").length;
  return `Time: ${parts.join(", ")}${deaths ? `, ${deaths} processes died` : ""}.`;
}
