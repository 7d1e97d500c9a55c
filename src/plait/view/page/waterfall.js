// A run over time: what went on from when to when, also in its child runs. ../waterfall.py has the shape of a row.
import { button, duration, flat, link, money, number, runAddress, shown } from "./dom.js";
import { html } from "./html.js";

const CHUNK = 100;
// With more rows than this, only the steps are open at first.
const MANY = 400;
const WORDS = { done: "", failed: "failed", running: "goes on", waiting: "waits for the user" };
// The part of the working time that an idle time is drawn with at most, so that a night of waiting hides no work.
const IDLE = 0.06;

// Where the seconds between `from` and `to` are on the picture, from 0 to 1: long times without work are drawn short.
const scale = (rows, parts, now) => {
  const ends = (row) => row.end ?? now;
  const busy = rows
    .filter((row) => row.kind !== "wait" && row.state !== "waiting" && !parts.has(row.id))
    .map((row) => [row.at, ends(row)])
    .sort((a, b) => a[0] - b[0]);
  const merged = [];
  for (const [at, end] of busy) {
    const last = merged.at(-1);
    if (last && at <= last[1]) last[1] = Math.max(last[1], end);
    else merged.push([at, end]);
  }
  const work = merged.reduce((sum, [at, end]) => sum + end - at, 0);
  const first = Math.min(rows[0]?.at ?? Infinity, merged[0]?.[0] ?? Infinity);
  const last = rows.reduce((most, row) => Math.max(most, ends(row)), first);
  const most = Math.max(IDLE * work, 0.05);
  // Each piece: from when on, where that is on the picture, and how much longer or shorter it is drawn.
  const pieces = [];
  let drawn = 0, isShort = false;
  const add = (from, to, isIdle) => {
    if (to <= from) return;
    const shorter = isIdle && to - from > 2 * most ? most / (to - from) : 1;
    isShort ||= shorter < 1;
    pieces.push([from, drawn, shorter]);
    drawn += (to - from) * shorter;
  };
  let at = first;
  for (const [from, to] of merged) {
    add(at, from, true);
    add(from, to, false);
    at = Math.max(at, to);
  }
  add(at, last, true);
  const place = (time) => {
    let low = 0, high = pieces.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (pieces[middle][0] <= time) low = middle;
      else high = middle - 1;
    }
    const [from, to, factor] = pieces[low] || [time, 0, 1];
    return drawn ? (to + Math.max(0, time - from) * factor) / drawn : 0;
  };
  return { place, isShort, whole: last - first, work };
};

export class Waterfall {
  constructor(place, source, id) {
    Object.assign(this, { place, source, id, rows: new Map(), lines: new Map(), open: new Map(), now: 0 });
    this.about = html`<p class="quiet w-about"></p>`;
    this.list = html`<ol class="waterfall" aria-label="The run over time"></ol>`;
    place.replaceChildren(this.about, this.list);
  }

  // Reads what is new and draws it. Calls that come meanwhile become one.
  async grow() {
    if (this.isGrowing) {
      this.isAskedAgain = true;
      return;
    }
    this.isGrowing = true;
    try {
      // Rows of other processes may come a little late.
      const since = this.now ? Math.max(0, Math.floor(this.now) - 5) : "";
      const { rows, now } = await this.source.waterfall(this.id, since);
      this.now = now;
      for (const row of rows) this.rows.set(row.id, row);
      this.parts = Map.groupBy(this.rows.values(), (row) => row.in || "");
      this.isLong ??= this.rows.size > MANY;
      this.rescale();
      for (const row of rows) this.lines.get(row.id)?.tell(row);
      await this.draw("", this.list);
    } finally {
      this.isGrowing = false;
    }
    if (!this.isAskedAgain) return;
    this.isAskedAgain = false;
    await this.grow();
  }

  // Draws the parts of a row that are not there yet, and those of the open ones; many in several goes.
  async draw(inside, list, depth = 0) {
    let count = 0;
    for (const row of this.parts.get(inside) || []) {
      let line = this.lines.get(row.id);
      if (!line) {
        line = this.line(row, depth);
        this.lines.set(row.id, line);
        list.append(line.root);
        this.putBar(line, row);
        if (++count % CHUNK === 0) await new Promise((done) => setTimeout(done));
      }
      const hasParts = this.parts.has(row.id);
      line.toggle.hidden = !hasParts;
      if (hasParts && this.isOpen(row)) await this.draw(row.id, line.parts, depth + 1);
    }
  }

  isOpen(row) {
    return this.open.get(row.id) ?? !this.isLong;
  }

  line(row, depth) {
    const isReadable = this.source.live || row.run === this.id;
    const hasPage = row.kind === "child" ? this.source.live : isReadable && row.kind !== "model";
    const address = row.kind === "child" ? runAddress(row.child) : runAddress(row.run, "step", row.step);
    const name = shown(flat(row.label, 80)), short = flat(row.label, 40);
    const label = hasPage ? link(name, address) : name;
    const wire = isReadable && row.wire !== undefined && `${runAddress(row.run, "wire", row.step)}?seq=${row.wire}`;
    const about = (words) => ({ class: "act", "aria-label": `${words}: ${short}` });
    const links = wire && [
      link("request", wire, about("Exact request")),
      link("difference", `${wire}&view=whole`, about("Difference from the request before")),
    ];
    const parts = html`<ol></ol>`;
    const turn = async () => {
      this.open.set(row.id, !this.isOpen(row));
      showToggle();
      if (this.isOpen(row)) await this.draw(row.id, parts, depth + 1);
    };
    const toggle = button("", turn, { class: "w-toggle", "aria-label": `Parts of ${short}` });
    const showToggle = () => {
      toggle.setAttribute("aria-expanded", String(this.isOpen(row)));
      parts.hidden = !this.isOpen(row);
    };
    showToggle();
    const note = html`<bdi class="w-note"></bdi>`;
    const head = html`<span class="w-name">${toggle}<bdi>${label}</bdi>${note}</span>`;
    head.style.paddingLeft = `${depth * 0.9}rem`;
    const facts = html`<span class="w-facts"></span>`;
    const bar = html`<i class="w-bar"></i>`;
    const root = html`<li data-row=${row.id}>
      <div class="w-line">
        ${head}<span class="w-links">${links}</span>${facts}<span class="w-track" aria-hidden="true">${bar}</span>
      </div>
      ${parts}</li>`;
    const tell = (now) => {
      root.className = `is-${now.kind} is-${now.state}`;
      note.replaceChildren(...shown(flat(now.note || "", 100)));
      note.title = flat(now.note || "", 400);
      const each = [
        WORDS[now.state] ?? now.state,
        now.end === null ? "" : duration(now.end - now.at) || "0 ms",
        now.tokens ? `${number(now.tokens)} tokens` : "",
        now.tokens && now.cost !== null ? money(now.cost) : "",
      ];
      facts.textContent = each.filter(Boolean).join(" · ");
    };
    tell(row);
    return { root, parts, toggle, bar, tell };
  }

  putBar({ bar }, row) {
    const left = this.scale.place(row.at);
    bar.style.left = `${100 * left}%`;
    bar.style.width = `${100 * (this.scale.place(row.end ?? this.now) - left)}%`;
  }

  rescale() {
    const rows = [...this.rows.values()];
    this.scale = scale(rows, this.parts, this.now);
    for (const [id, line] of this.lines) this.putBar(line, this.rows.get(id));
    const { isShort, whole, work } = this.scale;
    const waits = isShort ? " Times without work are drawn shorter." : "";
    this.about.textContent = rows.length
      ? `${duration(whole)} from the first request to the end, of which ${duration(work)} of work.${waits}`
      : "Nothing has happened yet.";
  }
}
