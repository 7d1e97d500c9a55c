// What a run did, folded: its plan and its steps, with child runs.
import { Braid, braidOptions, stepActs } from "./braid.js";
import { duration, line, many, money } from "./dom.js";
import { html } from "./html.js";
import { planOf } from "./plan.js";

export class Trace {
  constructor(source, id) {
    Object.assign(this, { source, id, items: new Map(), heads: new Map(), run: null, plan: null });
    this.summary = html`<summary></summary>`;
    this.list = html`<ol class="steps"></ol>`;
    this.picture = html`<div></div>`;
    this.place = html`<details class="trace" ontoggle=${() => this.place.open && this.open()}>${this.summary}
      <div class="trace-body">${this.picture}${this.list}</div></details>`;
  }

  // Draws the line that is always there, from a run's entry in a list or from its facts.
  tell(run) {
    const items = [...this.items.values()];
    const calls = items.length ? items.filter((each) => ["call", "code"].includes(each.kind)).length : run.tool_calls;
    const counted = [many(run.steps || 0, "step"), calls > 0 && many(calls, "call")];
    const spent = [run.status !== "running" && duration(run.seconds), typeof run.cost === "number" && money(run.cost)];
    this.summary.replaceChildren(...line("facts-line", counted, spent).childNodes);
  }

  // Takes a document of a run, or news of it.
  take(news) {
    this.run = news.run || this.run;
    this.plan = news.plan || this.plan;
    for (const step of news.steps || []) {
      this.heads.set(step.n, step);
      for (const item of step.items) this.items.set(item.id, item);
      this.braid?.put(step);
    }
    if (this.run) this.tell(this.run);
    if (this.braid) this.drawRest();
  }

  async open() {
    if (this.braid) return;
    this.list.replaceChildren(html`<li class="quiet">loading …</li>`);
    try {
      if (!this.run) this.take(await this.source.run(this.id));
    } catch (error) {
      this.list.replaceChildren(html`<li class="problem">${error.message}</li>`);
      return;
    }
    this.list.replaceChildren();
    this.braid = new Braid(this.list, {
      ...braidOptions(this.source, this.id),
      answer: () => this.run.answer,
      waits: () => html`<p class="quiet">The question is below.</p>`,
      heads: (step) => stepActs(this.id, step, null),
    });
    const items = [...this.items.values()];
    const steps = [...this.heads.values()].sort((a, b) => a.n - b.n);
    await this.braid.grow(steps.map((step) => ({ ...step, items: items.filter((each) => each.step === step.n) })));
    this.drawRest();
  }

  drawRest() {
    if (this.plan && this.plan !== this.drawnPlan) this.picture.replaceChildren(planOf(this.plan));
    this.drawnPlan = this.plan;
    // Several runs of the page have a first step.
    for (const step of this.list.children) step.removeAttribute("id");
  }

  // What the run is doing, in a few words.
  get doing() {
    const last = [...this.items.values()].at(-1);
    if (last?.kind === "call" && last.state === "running") return `calls ${last.tool} …`;
    if (last?.kind === "model" && last.state === "asking") return `asks ${last.model} …`;
    if (last?.kind === "wait" && !last.told) return "waits for you";
    return last ? "thinks …" : "starts …";
  }
}
