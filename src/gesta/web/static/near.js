// Keeps only the items near the screen in the page. Items are put into stretches. A stretch far from the screen is
// emptied but keeps its height, and its items come back before the person scrolls to it.
import { el } from "./dom.js";

const MOST = 24, MARGIN = "1800px";

export class Near {
  constructor() {
    this.held = new Map(); // the items of each emptied stretch
    this.watch = new IntersectionObserver((seen) => { for (const each of seen) if (each.isIntersecting) this.fill(each.target); else this.empty(each.target, each.boundingClientRect.height); }, { rootMargin: `${MARGIN} 0px` });
  }

  /** Add an item at the end of a place. */
  add(place, item) {
    let stretch = place.lastElementChild;
    if (!stretch || (this.held.get(stretch)?.length ?? stretch.childElementCount) >= MOST) {
      stretch = el("div", { class: "stretch" });
      place.append(stretch);
      this.watch.observe(stretch);
    }
    this.fill(stretch);
    item.stretch = stretch;
    stretch.append(item);
  }

  /** Put an item back into the page, so that the page can scroll to it. */
  show(item) { if (item.stretch) this.fill(item.stretch); }

  remove(item) {
    const held = this.held.get(item.stretch);
    if (held) this.held.set(item.stretch, held.filter((each) => each !== item));
    item.remove();
  }

  fill(stretch) {
    const items = this.held.get(stretch);
    if (!items) return;
    this.held.delete(stretch);
    stretch.append(...items);
    stretch.style.height = "";
  }

  empty(stretch, height) {
    if (this.held.has(stretch) || !stretch.childElementCount || !height || stretch.contains(document.activeElement)) return;
    this.held.set(stretch, [...stretch.children]);
    stretch.style.height = `${height}px`;
    stretch.replaceChildren();
  }

  /** Put all items back into the page, to print it. */
  all() { for (const stretch of [...this.held.keys()]) this.fill(stretch); }

  leave() { this.watch.disconnect(); }
}
