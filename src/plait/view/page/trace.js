// What a run did, folded: its plan and its steps, with child runs.
import { Braid, braidOptions, stepActs } from "./braid.js";
import { duration, line, make, many, money } from "./dom.js";
import { planOf } from "./plan.js";

const countCalls = (items) => [...items.values()].filter((each) => each.kind === "call" || each.kind === "code").length;

export class Trace {
  constructor(source, id) {
    Object.assign(this, { source, id, items: new Map(), heads: new Map(), run: null, plan: null });
    this.summary = make("summary");
    this.list = make("ol.steps");
    this.planPlace = make("div");
    this.place = make(
      "details.trace", {}, this.summary, make("div.trace-body", {}, this.planPlace, this.list),
    );
    this.place.addEventListener("toggle", () => this.place.open && this.open());
  }

  // Draws the line that is always there, from a run's entry in a list or from its facts.
  tell(run) {
    const cost = run.cost === null || run.cost === undefined ? "" : money(run.cost);
    const calls = this.items.size ? countCalls(this.items) : run.tool_calls;
    this.summary.replaceChildren(
      ...line(
        "facts-line",
        many(run.steps || 0, "step"),
        calls ? many(calls, "call") : "",
        run.status === "running" ? "" : duration(run.seconds),
        cost,
      ).childNodes,
    );
  }

  // Takes a document of a run, or news of it.
  take(news) {
    if (news.run) this.run = news.run;
    if (news.plan) this.plan = news.plan;
    for (const step of news.steps || []) {
      this.heads.set(step.n, { ...step, items: [] });
      for (const item of step.items) this.items.set(item.id, item);
      if (this.braid) this.braid.put(step);
    }
    if (this.run) this.tell(this.run);
    if (this.braid) this.drawRest();
  }

  async open() {
    if (this.braid) return;
    this.list.replaceChildren(make("li.quiet", {}, "loading …"));
    try {
      if (!this.run) this.take(await this.source.run(this.id));
    } catch (error) {
      this.list.replaceChildren(make("li.problem", {}, error.message));
      return;
    }
    this.list.replaceChildren();
    this.braid = new Braid(this.list, {
      ...braidOptions(this.source, this.id),
      answer: () => this.run.answer,
      waits: () => make("p.quiet", {}, "The question is below."),
      heads: (step) => stepActs(this.source, this.id, step, null),
    });
    await this.braid.grow(
      [...this.heads.values()]
        .sort((a, b) => a.n - b.n)
        .map((head) => ({ ...head, items: [...this.items.values()].filter((each) => each.step === head.n) })),
    );
    this.drawRest();
  }

  drawRest() {
    if (this.plan && this.plan !== this.drawnPlan) this.planPlace.replaceChildren(planOf(this.plan));
    this.drawnPlan = this.plan;
    // Several runs of the page have a first step.
    for (const step of this.list.children) step.removeAttribute("id");
  }

  // What the run is doing, in a few words; "" if that is not known.
  get doing() {
    const last = [...this.items.values()].at(-1);
    if (last?.kind === "call" && last.state === "running") return `calls ${last.tool} …`;
    if (last?.kind === "model" && last.state === "asking") return `asks ${last.model} …`;
    if (last?.kind === "wait" && !last.told) return "waits for you";
    return last ? "thinks …" : "starts …";
  }
}
