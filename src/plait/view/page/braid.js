// A run's steps as a braid: thought, action, observation, each a strand; growing as the run does.
// A step is {n, at, phases, models, items, seconds, cost, estimated, in, out, cached, cache_writes, reasoning_tokens}.
// ../items.py has the shape of an item: `ItemFields`. A text is [text, number of characters left out].
import {
  bdi, button, duration, fieldsOf, flat, line, link, money, number, problem, runAddress, shown, tokens, WORDS,
} from "./dom.js";
import { doing } from "./acts.js";
import { html } from "./html.js";
import { long } from "./text.js";
import { todoList } from "./todo.js";

// A reply of which it is not known yet whether calls follow it, and the value of a typed answer.
const WRITING = { text: "answer", output: "answer" };
const PICTURE = /\bimage\/(png|jpeg|gif|webp)\b/;
const ASKS = { question: "question to you", approval: "needs your approval", plan: "needs your approval for the plan" };
export const howAnswered = ({ approved, changed }) =>
  approved === null ? "answered" : approved ? `approved${changed ? " with changes" : ""}` : "refused";
const ASKER_LINE = /^The MCP server .+ asks you( to open an address)?\. It says:\n/m;
// Who asks a question: the agent, or an MCP server during a call.
export const askerOf = ({ server }) => (server ? ["The MCP server ", bdi(server)] : "The agent");
const ANSWERED = { question: "question to you", approval: "", plan: "the plan " };

// Between two steps the strands change places.
const crossing = (turn) => {
  const [thought, action, observation] = [0, 1, 2].map((i) => {
    const [from, to] = [i + turn, i + turn + 1].map((at) => 8 + 16 * (at % 3));
    return `M${from} 0C${from} 20 ${to} 16 ${to} 36`;
  });
  return html`<svg class="crossing" viewBox="0 0 48 36" aria-hidden="true">
    <path class="strand-thought" d="${thought}" />
    <path class="strand-action" d="${action}" />
    <path class="strand-observation" d="${observation}" />
  </svg>`;
};

// A time that can be read without a pointer, to the second.
export const exactTime = (at) => html`<time>${new Date(at * 1000).toLocaleString()}</time>`;
const changeTo = ({ changed }) => changed && html`<p class="changed">→ <ins>${shown(changed)}</ins></p>`;

// A part of an item: of a strand (`kind` is "thought", "action", "observation" or "answer"), or a note.
const part = (kind, label, ...inside) =>
  html`<div class="part ${kind}">
    <span class="label" title=${WORDS.get(label)}>${label}</span><div class="inside">${inside}</div></div>`;
const going = (...what) => html`<p class="going"><span class="pulse" aria-hidden="true"></span>${what}</p>`;
const took = (item) => item.seconds >= 0.001 && html`<span class="took">${duration(item.seconds)}</span>`;

const DEFAULTS = {
  // loads more of a text: rest(item, field, from); null: there is no more to be had
  rest: null,
  // what the head of a step ends with, what the result of a call ends with, and the form of what the run waits for
  heads: () => [],
  results: () => null,
  waits: () => null,
  // the run's answer where it stands above the steps
  answer: () => null,
  // what a tool does, and the user who asked the run
  describe: () => "",
  user: "",
  // the address of a file
  file: () => null,
  // cancels a call: cancel(key)
  cancel: null,
  // draws the steps of a child run: child(id, place)
  child: null,
  isLive: false,
  missing: "",
};

export class Braid {
  constructor(place, options) {
    Object.assign(this, { place, steps: new Map(), items: new Map(), ...DEFAULTS, ...options });
  }

  // Adds new and changed steps. Draws many steps in parts, so that the page keeps responding.
  async grow(steps) {
    for (let at = 0; at < steps.length; at += 25) {
      for (const step of steps.slice(at, at + 25)) this.put(step);
      if (at + 25 < steps.length) await new Promise((done) => setTimeout(done));
    }
  }

  put(step) {
    if (!this.steps.has(step.n)) this.steps.set(step.n, this.insertStep(step));
    const stepView = this.steps.get(step.n);
    stepView.step = step;
    for (const item of step.items) {
      const drawn = html`<div class="item" data-item=${item.id} data-kind=${item.kind}>${this.draw(item)}</div>`;
      const old = stepView.nodes.get(item.id);
      // Keeps an open form, because the user may be filling it in.
      if (old?.querySelector("form.answer") && drawn.querySelector("form.answer")) continue;
      if (old) old.replaceWith(drawn);
      else stepView.body.append(drawn);
      stepView.nodes.set(item.id, drawn);
      this.items.set(item.id, item);
      if (item.kind === "call") this.settle(stepView, item.id.slice(1));
      if (item.kind === "wait") this.settle(stepView, item.call);
    }
    const acts = [...stepView.nodes.keys()].some((id) => ["call", "code"].includes(this.items.get(id)?.kind));
    stepView.root.classList.toggle("acts", acts);
    for (const each of stepView.root.querySelectorAll("details.written")) if (!each.dataset.touched) each.open = !acts;
    const isPriced = step.phases.length && (step.cost !== null || !step.in);
    const hasSums = step.in || step.out || step.seconds;
    stepView.head.replaceChildren(
      html`<h3 tabindex="-1">${step.n ? `Step ${step.n}` : "Before the first step"}</h3>`,
      line(
        "facts-line",
        step.phases.length
          ? [html`<bdi title=${WORDS.get("phase")}>${shown(step.phases.join(", "))}</bdi>`, bdi(step.models.join(", "))]
          : [],
        hasSums ? [tokens(step), duration(step.seconds), isPriced ? money(step.cost) : ""] : [],
      ),
      html`<div class="step-acts">${this.heads(step)}</div>`,
    );
  }

  // Draws items again of which other things have changed than they themselves.
  redraw(items) {
    for (const item of items) this.put({ ...this.steps.get(item.step).step, items: [item] });
  }

  // Shows the unfinished replies: [{step, parts: [[kind, text]]}]. Each call has all of their text.
  // Before the first word of one: {step, parts: [], stage, seconds}. Of a tool at work: {step, progress: {text}}.
  write(steps) {
    const isAsked = (item) => item.kind === "model" && item.state === "asking";
    const asked = new Map([...this.items.values()].filter(isAsked).map((each) => [each.step, each.id]));
    for (const each of this.place.querySelectorAll(".writing")) each.remove();
    for (const { step, parts, stage, seconds, progress } of steps) {
      const view = this.steps.get(step);
      if (progress) {
        const working = [...(view?.root.querySelectorAll(".going") || [])].at(-1);
        working?.before(html`<div class="writing"><div class="text prose">${shown(progress.text)}</div></div>`);
        continue;
      }
      const pending = view?.nodes.get(asked.get(step))?.querySelector(".going");
      if (!pending) continue;
      const drawn = parts
        .filter(([, text]) => text.trim())
        .map(([kind, text]) => {
          const look = kind === "action" ? "code" : "prose", body = html`<pre dir="auto">${shown(text.trim())}</pre>`;
          const label = kind === "text" ? "reply" : kind;
          return part(WRITING[kind] || kind, label, html`<div class="text ${look}">${body}</div>`);
        });
      pending.before(html`<div class="writing">${drawn}</div>`);
      const before = seconds === undefined ? "" : ` · ${stage || "no text yet"} · ${seconds} s `;
      const doing = drawn.length ? " is writing " : before;
      if (doing) pending.querySelector(".doing")?.replaceChildren(doing);
    }
  }

  // Moves the result of a call below the question for approval, because it came after it.
  settle(stepView, id) {
    const items = [...stepView.nodes.keys()].map((each) => this.items.get(each));
    const asked = items.findLast((item) => item?.kind === "wait" && item.call === id);
    const call = stepView.nodes.get(`c${id}`);
    if (!call || !asked) return;
    const seen = call.querySelectorAll(":scope > .part.observation, :scope > .part.note, :scope > .going");
    if (!seen.length) return;
    const below = stepView.nodes.get(`o${id}`) || html`<div class="item"></div>`;
    below.replaceChildren(...seen);
    stepView.nodes.get(asked.id).after(below);
    stepView.nodes.set(`o${id}`, below);
  }

  insertStep({ n }) {
    const turn = (((n - 1) % 3) + 3) % 3;
    const head = html`<header class="step-head"></header>`;
    const body = html`<div class="items"></div>`;
    const root = html`<li class="step" id="step-${n}" data-turn=${turn} data-step=${n}>
      <div class="gutter" aria-hidden="true"><i></i><i></i><i></i></div>${head}${body}${crossing(turn)}</li>`;
    // Steps come in order, but a result of an earlier step may come later.
    let before = this.place.lastElementChild;
    while (before && Number(before.dataset.step) > n) before = before.previousElementSibling;
    if (before) before.after(root);
    else this.place.prepend(root);
    return { root, head, body, nodes: new Map() };
  }

  text(item, field, className = "", label = field) {
    const load = this.rest && ((from) => this.rest(item.id, field, from));
    return long(item[field], { rest: load, className, label, missing: this.missing });
  }

  // Whether a text is the run's answer. The page shows the answer above and not again.
  isShownAbove([text, more]) {
    const answer = this.answer()?.trim();
    return Boolean(answer) && (more ? answer.startsWith(text.trim()) : answer === text.trim());
  }

  draw(item) {
    switch (item.kind) {
      case "model":
        return this.model(item);
      case "call":
        return this.call(item);
      case "code":
        return [part("action", "code", this.text(item, "code", "code")), this.drawResult(item)];
      case "output":
        return this.drawResult(item);
      case "wait":
        return this.wait(item);
      default:
        if (item.word === "child" && this.child) return []; // the call has it
        if (item.word === "todo" && !item.text[1]) return part("note is-plain", "plan", todoList(item.text[0]));
        return part(`note is-${item.sort}`, shown(item.word), this.text(item, "text", "", "remark"));
    }
  }

  model(item) {
    // Attempts that failed come before the reply, as they did in time.
    const drawn = item.errors.map((wrong) =>
      part(
        "note is-error",
        `attempt ${wrong.attempt} failed`,
        wrong.status ? `${wrong.status} · ` : "",
        long(wrong.text, { label: "error" }),
        wrong.lost ? html`<p>The endpoint turned out not to take: ${wrong.lost}.</p>` : null,
        wrong.then ? html`<p class="quiet">${shown(wrong.then)}</p>` : null,
      ),
    );
    if (item.reasoning) {
      const text = this.text(item, "reasoning", "prose");
      const folded = html`<details><summary>The endpoint's own chain of thought</summary>${text}</details>`;
      drawn.push(part("thought", "reasoning", folded));
    }
    const asAbove = () => part("answer", "answer", html`<p class="quiet">The answer above.</p>`);
    const written = [];
    for (const name of item.parts || []) {
      const kind = name.replace(/\d+$/, "");
      if (kind === "hosted" || kind === "sources") {
        const label = kind === "hosted" ? "provider's call" : "sources";
        drawn.push(part("observation", label, this.text(item, name, "", label)));
      } else if (kind !== "thought" && kind !== "answer") written.push(this.text(item, name, "code", "action"));
      else if (kind === "answer" && this.isShownAbove(item[name])) drawn.push(asAbove());
      else drawn.push(part(kind, kind, this.text(item, name, "prose", kind)));
    }
    if (item.reply && this.isShownAbove(item.reply)) drawn.push(asAbove());
    else if (item.reply) written.push(this.text(item, "reply", "prose", "reply"));
    if (written.length) {
      const touch = (event) => (event.currentTarget.parentNode.dataset.touched = "yes");
      const words = item.reply ? "reply" : "action, as the model wrote it";
      const folded = html`<details class="written"><summary onclick=${touch}>${words}</summary>${written}</details>`;
      drawn.push(part("action", item.reply ? "reply" : "written", folded));
    }
    if (item.state === "asking") {
      const doing = html`<span class="doing"> · no text yet </span>`;
      drawn.push(going(bdi(item.model), doing, html`<span class="quiet">${shown(`(${item.phase})`)}</span>`));
    }
    if (item.finish === "length") drawn.push(part("note is-cut", "cut", "The model's token limit cut the reply."));
    return drawn;
  }

  call(item) {
    const given = item.input[0];
    const fields = item.input[1] ? null : fieldsOf(given);
    const isBrief = given.length <= 80 && !given.includes("\n");
    const brief = isBrief && given ? [" ", html`<code class="brief">${shown(given)}</code>`] : null;
    const input = fields ? this.fields(item, fields) : isBrief ? brief : this.text(item, "input", "code", "input");
    const by = item.by ? bdi(item.by) : "the user";
    const how = item.changed ? "Changed" : item.approved ? "Approved" : "Refused";
    const receipt = html`<p class="quiet">${how} by ${by}${item.changed && " before the call"}.</p>`;
    const inside = [html`<code class="tool">${shown(item.tool)}</code>`, input];
    const drawn = [part("action", "action", inside, !fields && changeTo(item), (item.changed || item.by) && receipt)];
    for (const [id, status] of Object.entries(item.children || {})) drawn.push(this.childRun(id, status));
    if (item.state === "running") {
      const cancel = () => doing(drawn.at(-1), () => this.cancel(item.id.slice(1)));
      const words = `Cancel the call of ${flat(item.tool, 60)}`;
      const control = this.cancel && button("Cancel this call", cancel, { class: "act", "aria-label": words });
      drawn.push(going(bdi(item.tool), " works ", control));
    }
    if (item.state !== "done") return drawn;
    const label = item.trouble ? `error: ${item.trouble.replace("_", " ")}` : "observation";
    drawn.push(
      part(
        item.trouble ? "observation trouble" : "observation",
        item.edited ? `${label}, edited by the user of this fork` : label,
        item.text[0] ? this.text(item, "text", "", "observation") : html`<p class="quiet">nothing</p>`,
        this.files(item),
        took(item),
        this.results(item),
      ),
    );
    if (item.note) drawn.push(part("note", "to the model", this.text(item, "note")));
    return drawn;
  }

  // The input of a call as a table. What the model wrote is one click away. What the user changed is marked.
  fields(item, fields) {
    const after = item.changed ? Object.fromEntries(fieldsOf(item.changed) || []) : null;
    const names = new Set([...fields.map(([name]) => name), ...Object.keys(after || {})]);
    const before = Object.fromEntries(fields);
    const draw = (name, value) => {
      if (value === undefined) return html`<span class="quiet">nothing</span>`;
      const [text, className] = typeof value === "string" ? [value, "plain"] : [JSON.stringify(value, null, 1), "code"];
      return long([text, 0], { className, label: flat(name, 40) });
    };
    const rows = [...names].map((name) => {
      const [old, now] = [before, after || before].map((each) => each[name]);
      const isSame = JSON.stringify(old) === JSON.stringify(now);
      const value = isSame
        ? draw(name, old)
        : html`<div class="changed"><del>${draw(name, old)}</del><span>→</span><ins>${draw(name, now)}</ins></div>`;
      return html`<dt>${shown(flat(name, 60))}</dt><dd>${value}</dd>`;
    });
    const table = html`<dl>${rows}</dl>`;
    const showExact = () => {
      const isExact = turn.getAttribute("aria-pressed") !== "true";
      turn.setAttribute("aria-pressed", String(isExact));
      body.replaceChildren(isExact ? this.text(item, "input", "code", "input") : table, turn);
    };
    const turn = html`<button type="button" class="act exact-input" aria-pressed="false" aria-label="Exact input"
      title="Exactly as it was written" onclick=${showExact}>{ }</button>`;
    const body = html`<div class="fields">${table}${turn}</div>`;
    return body;
  }

  // The pictures among the results of a call or a piece of code, and links to other files.
  files(item) {
    const made = Object.entries(item.files || {}).map(([id, about]) => {
      const src = this.file(id);
      if (!src) return null;
      if (!id.startsWith("image-") && !PICTURE.test(about))
        return this.isLive && id.startsWith("file-") ? link(flat(about, 80), src, { download: true }) : null;
      const title = flat(about, 100);
      const picture = html`<img src=${src} alt=${title} loading="lazy">`;
      return this.isLive ? link(picture, src, { target: "_blank", rel: "noopener", title }) : picture;
    });
    return made.some(Boolean) && html`<div class="pictures">${made}</div>`;
  }

  childRun(id, status) {
    const steps = html`<ol class="steps"></ol>`;
    const open = async (event) => {
      if (!event.target.open || !this.child || steps.childElementCount) return;
      await this.child(id, steps).catch((error) => steps.append(html`<li>${problem(error)}</li>`));
    };
    const summary = html`<summary>Child run <code>${shown(id)}</code> ${status || "goes on"}</summary>`;
    const page = this.isLive && link("Its page", runAddress(id), { class: "act" });
    const details = html`<details class="child" ontoggle=${open}>${summary}${page}${steps}</details>`;
    return html`<div class="part child-part">${details}</div>`;
  }

  drawResult(item) {
    const output = item.output ? this.text(item, "output") : null;
    const line = item.line ? html`<p class="quiet">in line ${number(item.line)}</p>` : null;
    return [
      output || item.files ? part("observation", "output", output, this.files(item), took(item)) : null,
      item.error ? part("observation trouble", "error", this.text(item, "error"), line) : null,
      item.lost ? part("note is-error", "lost", "The session is gone with all its names.") : null,
    ];
  }

  // What the user is asked. The inputs of a call are a table, unless it stands above.
  asked(item) {
    const { ask, told } = item, label = "question";
    // The title names the server.
    if (item.server && !item.text[1]) item = { ...item, text: [item.text[0].replace(ASKER_LINE, ""), 0] };
    if (ask !== "approval" || !item.tool) return this.text(item, "text", ask === "question" ? "prose" : "code", label);
    const about = this.describe(item.tool);
    const of = this.items.get(`c${item.call}`);
    const isSeen = of?.tool === item.tool && (told || of.input[0] === item.given);
    const fields = !isSeen && fieldsOf(item.given);
    return html`<p><code class="tool">${shown(item.tool)}</code>${about && [": ", shown(about)]}</p>
      ${fields && this.fields({ ...item, input: [item.given, 0] }, fields)}
      ${!isSeen && !fields && [this.text(item, "text", "code", label), changeTo(item)]}
      ${!told && this.user && html`<p class="quiet">Asked for by ${bdi(this.user)}.</p>`}
      ${item.why[0] && this.text(item, "why", "prose", "reason")}`;
  }

  wait(item) {
    const { ask, approved, told } = item;
    const label = told && approved !== null ? `${ANSWERED[ask]}was ${howAnswered(item)}` : ASKS[ask] || ask;
    const receipt = told && line("quiet", item.by && html`<span>by ${bdi(item.by)}</span>`, exactTime(item.answered));
    const words = told?.[0] && !item.changed && this.text(item, "told", "prose", "answer");
    const answer = told && (words || approved === null) && part("note is-told", item.by ? bdi(item.by) : "you", words);
    const asker = item.server && html`<p><strong>${askerOf(item)} asks</strong></p>`;
    return [part("note is-wait", label, asker, this.asked(item), receipt), told ? answer || [] : this.waits(item)];
  }
}

// Options of a `Braid` that draw the steps of run `id`, and of its child runs in place.
export const braidOptions = (source, id) => ({
  rest: source.text ? (item, field, from) => source.text(id, item, field, from) : null,
  file: (file) => source.file(id, file),
  cancel: source.cancelCall ? (call) => source.cancelCall(id, call) : null,
  isLive: source.live,
  missing: `All of it: plait show ${id} --full`,
  child: async (child, place) => {
    const data = await source.run(child);
    const waits = () => html`<p class="quiet">It waits for an answer.</p>`;
    await new Braid(place, { ...braidOptions(source, child), waits }).grow(data.steps);
    // Steps of a child run are no places of this page: its own steps have these ids.
    for (const step of place.children) step.removeAttribute("id");
  },
});

export const stepActs = (id, { n, phases }, fork) => {
  const about = (words, title) => ({ "aria-label": words, class: "act", title });
  return [
    phases.length > 0 && link("wire", runAddress(id, "wire", n), about(`Exact wire of step ${n}`, WORDS.get("wire"))),
    fork && n > 0 && button("run again from here", () => fork(n), about(`Run again from here, step ${n}`)),
  ];
};
