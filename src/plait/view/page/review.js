// The review: one run after another that matches and that nobody has rated, to be judged by keys or buttons.
import { Braid } from "./braid.js";
import { announce, button, chip, duration, endOf, line, link, make, many, money, problem, shown } from "./dom.js";
import { improveTabs } from "./improve.js";
import { addTaskDialog } from "./datasets.js";
import { long } from "./text.js";

const KEYS = { g: "Good", b: "Bad", a: "Add to a data set", s: "Skip" };

export const reviewPage = async (place, source, filters) => {
  const skipped = new Set();
  const comment = make("textarea", { id: "review-comment", rows: 2 });
  const state = make("p.quiet", { role: "status" });
  const body = make("div.review");
  let run = null,
    isBusy = false;

  const next = async () => {
    const queue = await source.review(filters);
    const left = queue.runs.filter((each) => !skipped.has(each));
    const whole = queue.left + queue.rated;
    // Two who review at once seldom get the same run: each begins at another one of the first.
    const data = left.length ? await source.run(left[Math.floor(Math.random() * Math.min(5, left.length))]) : null;
    state.textContent = `${queue.rated} of ${many(whole, "run")} rated${skipped.size ? `, ${skipped.size} skipped` : ""}`;
    comment.value = "";
    run = data?.run || null;
    isBusy = false;
    if (!run) {
      body.replaceChildren(make("p", {}, skipped.size ? "Only skipped runs are left." : "All are rated."));
      return;
    }
    const list = make("ol.steps");
    const steps = make("details", {}, make("summary", {}, many(run.steps, "step")), list);
    steps.addEventListener("toggle", () => {
      if (steps.open && !list.children.length) new Braid(list, { answer: () => run.answer }).grow(data.steps);
    });
    const address = `#/runs/${encodeURIComponent(run.run)}`;
    const facts = [run.loop, duration(run.seconds), money(run.cost)].map((each) => make("bdi", {}, shown(each)));
    body.replaceChildren(
      make("h2", { tabindex: "-1" }, make("bdi", {}, shown(run.question.slice(0, 2000)))),
      make("div.state", {}, chip(run), line("facts-line", facts, link("open", address))),
      make(
        `section.outcome.is-${endOf(run)}`,
        {},
        long([run.answer ?? run.reason ?? "", 0], { className: "prose", label: "answer" }),
      ),
      steps,
      make("div.field", {}, make("label", { for: "review-comment" }, "Comment"), comment),
      make(
        "div.buttons",
        {},
        Object.entries(KEYS).map(([key, words]) => act(key, words)),
      ),
    );
    body.querySelector("h2").focus({ preventScroll: true });
  };
  const acts = {
    g: () => source.rate(run.run, { good: true, why: comment.value.trim(), only_unrated: true }),
    b: () => source.rate(run.run, { good: false, why: comment.value.trim(), only_unrated: true }),
    s: () => skipped.add(run.run),
  };
  const press = async (key) => {
    if (!run || isBusy) return;
    if (key === "a") return void (await addTaskDialog(source, run));
    isBusy = true;
    body.querySelector(".problem")?.remove();
    try {
      await acts[key]();
      announce(key === "s" ? "Skipped." : "Rated.");
      await next();
    } catch (error) {
      skipped.add(run.run); // somebody else has rated it: the next press goes on
      body.prepend(problem(error), button("Next run", next));
    } finally {
      isBusy = false;
    }
  };
  const act = (key, words) =>
    button([words, make("kbd", { "aria-hidden": "true" }, key)], () => press(key), { class: `review-${key}` });
  const listen = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (!(event.key in KEYS) || event.target.closest?.("input, textarea, select")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    press(event.key);
  };
  addEventListener("keydown", listen, true);
  place.replaceChildren(
    make(
      "header",
      {},
      improveTabs("review"),
      make("h1", { tabindex: "-1" }, "Review"),
      state,
      make("p.quiet", {}, "Runs that nobody has rated. The filters of the runs apply."),
    ),
    body,
  );
  document.title = "Review · Plait";
  await next();
  return { leave: () => removeEventListener("keydown", listen, true) };
};
