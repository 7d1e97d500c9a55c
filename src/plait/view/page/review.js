// The review: one run after another that matches and that nobody has rated, to be judged by keys or buttons.
import { field } from "./acts.js";
import { Braid } from "./braid.js";
import { announce, button, chip, duration, endOf, line, link, many, money, problem, runAddress, shown } from "./dom.js";
import { html } from "./html.js";
import { addTaskDialog } from "./datasets.js";
import { long } from "./text.js";

const KEYS = { g: "Good", b: "Bad", a: "Add to a data set", s: "Skip" };

export const reviewPage = async (place, source, filters) => {
  const skipped = new Set();
  const comment = html`<textarea id="review-comment" rows="2"></textarea>`;
  const state = html`<p class="quiet" role="status"></p>`;
  const body = html`<div class="review"></div>`;
  let run = null, isBusy = false;

  const next = async () => {
    const queue = await source.review(filters);
    const left = queue.runs.filter((each) => !skipped.has(each));
    // Two who review at once seldom get the same run: each begins at another one of the first.
    const data = left.length ? await source.run(left[Math.floor(Math.random() * Math.min(5, left.length))]) : null;
    const rated = `${queue.rated} of ${many(queue.left + queue.rated, "run")} rated`;
    state.textContent = `${rated}${skipped.size ? `, ${skipped.size} skipped` : ""}`;
    comment.value = "";
    run = data?.run || null;
    isBusy = false;
    if (!run) {
      body.replaceChildren(html`<p>${skipped.size ? "Only skipped runs are left." : "All are rated."}</p>`);
      return;
    }
    const list = html`<ol class="steps"></ol>`;
    const showSteps = () => {
      if (!list.children.length) new Braid(list, { answer: () => run.answer }).grow(data.steps);
    };
    const facts = [run.loop, duration(run.seconds), money(run.cost)].map((each) => html`<bdi>${shown(each)}</bdi>`);
    const open = link("open", runAddress(run.run));
    const outcome = long([run.answer ?? run.reason ?? "", 0], { className: "prose", label: "answer" });
    body.replaceChildren(html`<h2 tabindex="-1"><bdi>${shown(run.question.slice(0, 2000))}</bdi></h2>
      <div class="state">${chip(run)}${line("facts-line", facts, open)}</div>
      <section class="outcome is-${endOf(run)}">${outcome}</section>
      <details ontoggle=${showSteps}><summary>${many(run.steps, "step")}</summary>${list}</details>
      ${field("Comment", comment)}<div class="buttons">${Object.entries(KEYS).map(act)}</div>`);
    body.querySelector("h2").focus({ preventScroll: true });
  };
  const rate = (good) => source.rate(run.run, { good, why: comment.value.trim(), only_unrated: true });
  const acts = { g: () => rate(true), b: () => rate(false), s: () => skipped.add(run.run) };
  const press = async (key) => {
    if (!run || isBusy) return;
    if (key === "a") return void addTaskDialog(source, run);
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
  const act = ([key, words]) =>
    button(html`${words}<kbd aria-hidden="true">${key}</kbd>`, () => press(key), { class: `review-${key}` });
  const listen = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (!(event.key in KEYS) || event.target.closest?.("input, textarea, select")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    press(event.key);
  };
  addEventListener("keydown", listen, true);
  place.replaceChildren(state, body);
  await next();
  return { leave: () => removeEventListener("keydown", listen, true) };
};
