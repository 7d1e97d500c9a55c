// A run's steps as a braid: thought, action, observation, each a strand; growing as the run does.
// A step is {n, at, phases, models, items, seconds, cost, estimated, in, out, cached, cache_writes, reasoning_tokens}.
// ../items.py has the shape of an item: `ItemFields`. A text is [text, number of characters left out].
import { button, duration, flat, line, link, make, money, number, problem, shown, tokens } from "./dom.js";
import { long } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const STRANDS = ["thought", "action", "observation"];
// A reply of which it is not known yet whether calls follow it, and the value of a typed answer.
const WRITING = { text: "answer", output: "answer" };
const PICTURE = /\bimage\/(png|jpeg|gif|webp)\b/;
const ASKS = { question: "question to you", approval: "needs your approval", plan: "needs your approval for the plan" };

// Between two steps the strands change places.
const crossing = (turn) => {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "crossing");
  svg.setAttribute("viewBox", "0 0 48 36");
  svg.setAttribute("aria-hidden", "true");
  STRANDS.forEach((strand, i) => {
    const from = 8 + 16 * ((i + turn) % 3),
      to = 8 + 16 * ((i + turn + 1) % 3);
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", `M${from} 0C${from} 20 ${to} 16 ${to} 36`);
    path.setAttribute("class", `strand-${strand}`);
    svg.append(path);
  });
  return svg;
};

// The fields of an input that is a JSON object; null for another, and for numbers that JavaScript would change.
const fieldsOf = (text) => {
  if (!text.startsWith("{") || /\d{16}/.test(text)) return null;
  try {
    const fields = Object.entries(JSON.parse(text));
    return fields.length ? fields : null;
  } catch {
    return null;
  }
};

const strandPart = (strand, label, ...inside) =>
  make(`div.part.${strand}`, { "data-strand": strand }, make("span.label", {}, label), make("div.inside", {}, inside));

export class Braid {
  // `rest(item, field, from)` loads more of a text (null: there is no more to be had); `heads(step)` gives what the head
  // of a step ends with; `answer()` is the run's answer where it stands above the steps; `file(id)` the address of a file,
  // `results(item)`
  // what the result of a call ends with, and `child(id, place)` draws the steps of a child run.
  constructor(
    place,
    {
      rest = null,
      heads = () => [],
      waits = () => null,
      answer = () => null,
      results = () => null,
      file = () => null,
      child = null,
      isLive = false,
      missing = "",
    } = {},
  ) {
    Object.assign(this, { place, rest, heads, waits, answer, results, file, child, isLive, missing });
    this.steps = new Map();
    this.items = new Map();
  }

  // Adds new and changed steps. Draws many steps in parts, so that the page keeps responding.
  async grow(steps) {
    for (let at = 0; at < steps.length; at += 25) {
      for (const step of steps.slice(at, at + 25)) this.put(step);
      if (at + 25 < steps.length) await new Promise((done) => setTimeout(done));
    }
  }

  put(step) {
    let stepView = this.steps.get(step.n);
    if (!stepView) {
      stepView = this.insertStep(step);
      this.steps.set(step.n, stepView);
    }
    for (const item of step.items) {
      const drawn = make("div.item", { "data-item": item.id, "data-kind": item.kind }, this.draw(item));
      const old = stepView.nodes.get(item.id);
      // Keeps an open form, because the user may be filling it in.
      if (old?.querySelector("form.answer") && drawn.querySelector("form.answer")) continue;
      if (old) old.replaceWith(drawn);
      else stepView.body.append(drawn);
      stepView.nodes.set(item.id, drawn);
      this.items.set(item.id, item);
      if (item.kind === "call" || item.kind === "wait")
        this.settle(stepView, item.kind === "call" ? item.id.slice(1) : item.call);
    }
    const acts = [...stepView.nodes.values()].some((each) => ["call", "code"].includes(each.dataset.kind));
    stepView.root.classList.toggle("acts", acts);
    stepView.root.querySelectorAll("details.written").forEach((each) => {
      if (!each.dataset.touched) each.open = !acts;
    });
    const words = [step.phases.join(", "), step.models.join(", ")].map((each) => make("bdi", {}, shown(each)));
    stepView.head.replaceChildren(
      make("h3", { tabindex: "-1" }, step.n ? `Step ${step.n}` : "Before the first step"),
      line(
        "facts-line",
        ...(step.phases.length ? words : []),
        ...(step.in || step.out || step.seconds
          ? [
              tokens(step),
              duration(step.seconds),
              step.phases.length && (step.cost !== null || !step.in) ? money(step.cost) : "",
            ]
          : []),
      ),
      make("div.step-acts", {}, this.heads(step)),
    );
    return stepView.root;
  }

  // Shows the unfinished replies: [{step, parts: [[kind, text]]}]. Each call has all of their text.
  // Before the first word of one: {step, parts: [], stage, seconds}. Of a tool at work: {step, progress: {text}}.
  write(steps) {
    const asked = new Map(
      [...this.items.values()]
        .filter((each) => each.kind === "model" && each.state === "asking")
        .map((each) => [each.step, each.id]),
    );
    this.place.querySelectorAll(".writing").forEach((each) => each.remove());
    for (const { step, parts, stage, seconds, progress } of steps) {
      if (progress) {
        const working = this.steps.get(step)?.root.querySelectorAll(".going") || [];
        working[working.length - 1]?.before(make("div.writing", {}, make("div.text.prose", {}, shown(progress.text))));
        continue;
      }
      const node = this.steps.get(step)?.nodes.get(asked.get(step));
      const drawn = parts
        .filter(([, text]) => text.trim())
        .map(([kind, text]) =>
          strandPart(
            WRITING[kind] || kind,
            kind === "text" ? "reply" : kind,
            make(
              `div.text.${kind === "action" ? "code" : "prose"}`,
              {},
              make("pre", { dir: "auto" }, shown(text.trim())),
            ),
          ),
        );
      const pending = node?.querySelector(".going");
      pending?.before(make("div.writing", {}, drawn));
      const doing = drawn.length
        ? " is writing "
        : seconds !== undefined
          ? ` · ${stage || "no text yet"} · ${seconds} s `
          : "";
      if (doing) pending?.querySelector(".doing")?.replaceChildren(doing);
    }
  }

  // Moves the result of a call below the question for approval, because it came after it.
  settle(stepView, id) {
    const asked = [...this.items.values()].filter(
      (item) => item.kind === "wait" && item.call === id && stepView.nodes.has(item.id),
    );
    const call = stepView.nodes.get(`c${id}`),
      wait = asked.length ? stepView.nodes.get(asked.at(-1).id) : null;
    const seen =
      call && wait ? call.querySelectorAll(":scope > .part.observation, :scope > .part.note, :scope > .going") : [];
    if (!seen.length) return;
    const below = stepView.nodes.get(`o${id}`) || make("div.item");
    below.replaceChildren(...seen);
    wait.after(below);
    stepView.nodes.set(`o${id}`, below);
  }

  insertStep(step) {
    const turn = (((step.n - 1) % 3) + 3) % 3;
    const head = make("header.step-head"),
      body = make("div.items");
    const root = make(
      "li.step",
      { id: `step-${step.n}`, "data-turn": turn, "data-step": step.n },
      make("div.gutter", { "aria-hidden": "true" }, make("i"), make("i"), make("i")),
      head,
      body,
      crossing(turn),
    );
    // Steps come in order, but a result of an earlier step may come later.
    const after = [...this.place.children].find((each) => Number(each.dataset.step) > step.n);
    this.place.insertBefore(root, after || null);
    return { root, head, body, nodes: new Map() };
  }

  text(item, field, className = "", label = field) {
    const load = this.rest && ((from) => this.rest(item.id, field, from));
    return long(item[field], { rest: load, className, label, missing: this.missing });
  }

  // Whether a text is the run's answer. The page shows the answer above and not again.
  isShownAbove([text, more]) {
    const answer = this.answer()?.trim(),
      said = text.trim();
    return Boolean(answer) && (more ? answer.startsWith(said) : answer === said);
  }

  draw(item) {
    switch (item.kind) {
      case "model":
        return this.model(item);
      case "call":
        return this.call(item);
      case "code":
        return [strandPart("action", "code", this.text(item, "code", "code")), ...this.drawResult(item)];
      case "output":
        return this.drawResult(item);
      case "wait":
        return this.wait(item);
      default:
        if (item.word === "child" && this.child) return []; // the call has it
        return make(
          `div.part.note.is-${item.sort}`,
          {},
          make("span.label", {}, shown(item.word)),
          make("div.inside", {}, this.text(item, "text", "", "remark")),
        );
    }
  }

  model(item) {
    const drawn = [],
      written = [];
    // Attempts that failed come before the reply, as they did in time.
    for (const wrong of item.errors) {
      drawn.push(
        make(
          "div.part.note.is-error",
          {},
          make("span.label", {}, `attempt ${wrong.attempt} failed`),
          make(
            "div.inside",
            {},
            wrong.status ? `${wrong.status} · ` : "",
            long(wrong.text, { label: "error" }),
            wrong.lost ? make("p", {}, `The endpoint turned out not to take: ${wrong.lost}.`) : null,
            wrong.then ? make("p.quiet", {}, shown(wrong.then)) : null,
          ),
        ),
      );
    }
    if (item.reasoning)
      drawn.push(
        strandPart(
          "thought",
          "reasoning",
          make(
            "details",
            {},
            make("summary", {}, "The endpoint's own chain of thought"),
            this.text(item, "reasoning", "prose"),
          ),
        ),
      );
    for (const name of item.parts || []) {
      const kind = name.replace(/\d+$/, "");
      if (kind === "thought") drawn.push(strandPart("thought", "thought", this.text(item, name, "prose", "thought")));
      else if (kind === "answer")
        drawn.push(
          strandPart(
            "answer",
            "answer",
            this.isShownAbove(item[name]) ? make("p.quiet", {}, "as above") : this.text(item, name, "prose", "answer"),
          ),
        );
      else written.push(this.text(item, name, "code", "action"));
    }
    if (item.reply && this.isShownAbove(item.reply))
      drawn.push(strandPart("answer", "answer", make("p.quiet", {}, "as above")));
    else if (item.reply) written.push(this.text(item, "reply", "prose", "reply"));
    if (written.length) {
      const details = make(
        "details.written",
        {},
        make("summary", {}, item.reply ? "reply" : "action, as the model wrote it"),
        written,
      );
      details.querySelector("summary").addEventListener("click", () => {
        details.dataset.touched = "yes";
      });
      drawn.push(strandPart("action", item.reply ? "reply" : "written", details));
    }
    if (item.state === "asking")
      drawn.push(
        make(
          "p.going",
          {},
          make("span.pulse", { "aria-hidden": "true" }),
          make("bdi", {}, shown(item.model)),
          make("span.doing", {}, " · no text yet "),
          make("span.quiet", {}, ...shown(`(${item.phase})`)),
        ),
      );
    if (item.finish === "length")
      drawn.push(
        make(
          "div.part.note.is-cut",
          {},
          make("span.label", {}, "cut"),
          make("div.inside", {}, "The reply was cut by the model's token limit."),
        ),
      );
    return drawn;
  }

  call(item) {
    const named = [make("code.tool", {}, shown(item.tool))];
    const given = item.input[0];
    const fields = item.input[1] ? null : fieldsOf(given);
    if (fields) named.push(this.fields(item, fields));
    else if (given && given.length <= 80 && !given.includes("\n"))
      named.push(" ", make("code.brief", {}, shown(given)));
    else if (given) named.push(this.text(item, "input", "code", "input"));
    const drawn = [strandPart("action", "action", named)];
    if (item.children) drawn.push(...Object.entries(item.children).map(([id, status]) => this.childRun(id, status)));
    if (item.state === "running")
      drawn.push(
        make("p.going", {}, make("span.pulse", { "aria-hidden": "true" }), make("bdi", {}, shown(item.tool)), " works"),
      );
    if (item.state === "done") {
      const kind = item.trouble ? `error: ${item.trouble.replace("_", " ")}` : "observation";
      const label = item.edited ? `${kind}, edited by the user of this fork` : kind;
      const seen = strandPart(
        "observation",
        label,
        item.text[0] ? this.text(item, "text", "", "observation") : make("p.quiet", {}, "nothing"),
        this.files(item),
        item.seconds >= 0.001 ? make("span.took", {}, duration(item.seconds)) : null,
        this.results(item),
      );
      if (item.trouble) seen.classList.add("trouble");
      drawn.push(seen);
      if (item.note)
        drawn.push(
          make(
            "div.part.note",
            {},
            make("span.label", {}, "to the model"),
            make("div.inside", {}, this.text(item, "note")),
          ),
        );
    }
    return drawn;
  }

  // The input of a call as a table. What the model wrote is one click away.
  fields(item, fields) {
    const body = make("div.fields");
    const table = make(
      "dl",
      {},
      fields.map(([name, value]) => [
        make("dt", {}, shown(flat(name, 60))),
        make(
          "dd",
          {},
          long([typeof value === "string" ? value : JSON.stringify(value, null, 1), 0], {
            className: typeof value === "string" ? "plain" : "code",
            label: flat(name, 40),
          }),
        ),
      ]),
    );
    const turn = button(
      "{ }",
      () => {
        const isExact = turn.getAttribute("aria-pressed") !== "true";
        turn.setAttribute("aria-pressed", String(isExact));
        body.replaceChildren(isExact ? this.text(item, "input", "code", "input") : table, turn);
      },
      { class: "act exact-input", "aria-pressed": "false", "aria-label": "Exact input", title: "Exactly as it was written" },
    );
    body.append(table, turn);
    return body;
  }

  // The pictures among the results of a call or a piece of code, and links to other files.
  files(item) {
    const made = Object.entries(item.files || {}).map(([id, about]) => {
      const src = this.file(id);
      if (!src) return null;
      if (!id.startsWith("image-") && !PICTURE.test(about))
        return this.isLive && id.startsWith("file-") ? link(flat(about, 80), src, { download: true }) : null;
      const picture = make("img", { src, alt: flat(about, 100), loading: "lazy" });
      return this.isLive ? link(picture, src, { target: "_blank", rel: "noopener", title: flat(about, 100) }) : picture;
    });
    return made.some(Boolean) ? make("div.pictures", {}, made) : null;
  }

  childRun(id, status) {
    const steps = make("ol.steps");
    const details = make(
      "details.child",
      {},
      make("summary", {}, "Child run ", make("code", {}, shown(id)), ` ${status || "goes on"}`),
      this.isLive ? link("Its page", `#/runs/${encodeURIComponent(id)}`, { class: "act" }) : null,
      steps,
    );
    details.addEventListener("toggle", async () => {
      if (!details.open || !this.child || steps.childElementCount) return;
      try {
        await this.child(id, steps);
      } catch (error) {
        steps.append(make("li", {}, problem(error)));
      }
    });
    return make("div.part.child-part", {}, details);
  }

  drawResult(item) {
    const drawn = [];
    if (item.output || item.files)
      drawn.push(
        strandPart(
          "observation",
          "output",
          item.output ? this.text(item, "output") : null,
          this.files(item),
          item.seconds >= 0.001 ? make("span.took", {}, duration(item.seconds)) : null,
        ),
      );
    if (item.error) {
      const wrong = strandPart(
        "observation",
        "error",
        this.text(item, "error"),
        item.line ? make("p.quiet", {}, `in line ${number(item.line)}`) : null,
      );
      wrong.classList.add("trouble");
      drawn.push(wrong);
    }
    if (item.lost)
      drawn.push(
        make(
          "div.part.note.is-error",
          {},
          make("span.label", {}, "lost"),
          make("div.inside", {}, "The session is gone with all its names."),
        ),
      );
    return drawn;
  }

  wait(item) {
    const label = ASKS[item.ask] || item.ask;
    const drawn = [
      make(
        "div.part.note.is-wait",
        {},
        make("span.label", {}, label),
        make("div.inside", {}, this.text(item, "text", item.ask === "question" ? "prose" : "code", label)),
      ),
    ];
    if (item.told) {
      const words = item.approved === null ? null : item.approved ? "approved" : "refused";
      drawn.push(
        make(
          "div.part.note.is-told",
          {},
          make("span.label", {}, "you"),
          make("div.inside", {}, words, item.told[0] ? this.text(item, "told", "prose", "your words") : null),
        ),
      );
    } else {
      drawn.push(this.waits(item));
    }
    return drawn;
  }
}

// Options of a `Braid` that draw the steps of run `id`, and of its child runs in place.
export const braidOptions = (source, id) => ({
  rest: source.text ? (item, field, from) => source.text(id, item, field, from) : null,
  file: (file) => source.file(id, file),
  isLive: source.live,
  missing: `All of it: plait show ${id} --full`,
  child: async (child, place) => {
    const data = await source.run(child);
    const braid = new Braid(place, {
      ...braidOptions(source, child),
      waits: () => make("p.quiet", {}, "It waits for an answer."),
    });
    await braid.grow(data.steps);
    // Steps of a child run are no places of this page: its own steps have these ids.
    for (const step of place.children) step.removeAttribute("id");
  },
});

export const stepActs = (source, id, step, fork) => {
  const acts = [];
  if (step.phases.length)
    acts.push(
      link("wire", `#/runs/${encodeURIComponent(id)}/wire/${step.n}`, {
        "aria-label": `Exact wire of step ${step.n}`,
        class: "act",
      }),
    );
  if (source.live && step.n && fork)
    acts.push(button("fork", () => fork(step.n), { "aria-label": `Fork from step ${step.n}`, class: "act" }));
  return acts;
};
