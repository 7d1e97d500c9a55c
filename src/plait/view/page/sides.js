// Two runs side by side, with the first difference marked.
import { Braid } from "./braid.js";
import { chip, duration, line, link, make, many, money, shown, tokens } from "./dom.js";

// `at` counts characters by code point.
const parted = (text, at) => {
  const all = [...text],
    rest = all.slice(at).join("");
  return [make("span", {}, shown(all.slice(0, at).join(""))), make("mark", {}, rest ? shown(rest) : "(ends here)")];
};

const column = (source, name, data, place) => {
  const run = data.run,
    list = make("ol.steps");
  const braid = new Braid(list, {
    rest: (item, field, from) => source.text(run.run, item, field, from),
    heads: (step) =>
      step.phases.length
        ? [
            link("wire", `#/runs/${encodeURIComponent(run.run)}/wire/${step.n}`, {
              class: "act",
              "aria-label": `Exact wire of step ${step.n} of run ${name}`,
            }),
          ]
        : [],
  });
  const text = run.answer ?? run.reason ?? "";
  place.append(
    make(
      "header",
      {},
      make("h2", {}, `${name} `, link(run.run, `#/runs/${encodeURIComponent(run.run)}`)),
      make(
        "div.state",
        {},
        chip(run),
        line(
          "facts-line",
          make("bdi", {}, shown(run.loop)),
          run.models.map((each) => make("bdi", {}, shown(each))),
          many(run.steps, "step"),
          tokens(run),
          duration(run.seconds),
          money(run.cost),
        ),
      ),
      text ? make("p.short-answer", {}, shown(text.length > 600 ? `${text.slice(0, 600)}…` : text)) : null,
    ),
    list,
  );
  return braid;
};

export const sidesPage = async (place, source, a, b) => {
  const found = await source.sides(a, b);
  const first = found.first;
  const columns = [make("section.side", { "aria-label": "Run A" }), make("section.side", { "aria-label": "Run B" })];
  const braids = columns.map((each, i) => column(source, "AB"[i], [found.a, found.b][i], each));
  const questions = [found.a.run.question, found.b.run.question];
  const where = first && (first.step ? `in step ${first.step}, ` : "in ");
  const jump = first?.step
    ? link("show it", `#step-${first.step}`, {
        class: "act",
        onclick: (event) => {
          event.preventDefault();
          place.querySelector(".differs")?.scrollIntoView({ block: "center" });
          place.querySelector(".differs")?.focus({ preventScroll: true });
        },
      })
    : null;
  place.replaceChildren(
    make(
      "header.run-head",
      {},
      make("p.crumbs", {}, link("Runs", "#/"), " / side by side"),
      make("h1", { tabindex: "-1" }, "Two runs side by side"),
      questions[0] === questions[1] ? make("p.lede", {}, make("bdi", {}, shown(questions[0].slice(0, 600)))) : null,
      make(
        "section.first",
        { "aria-label": "First difference" },
        first
          ? [
              make(
                "p",
                {},
                make("strong", {}, "They first differ "),
                where,
                make("em", {}, first.what),
                ". ",
                found.same.length
                  ? `${many(found.same.length, "step")} ${found.same.length === 1 ? "is" : "are"} alike. `
                  : "",
                jump,
              ),
              first.a || first.b
                ? make(
                    "dl.parting",
                    {},
                    make("dt", {}, "A"),
                    make("dd", { dir: "auto" }, parted(first.a, first.at)),
                    make("dt", {}, "B"),
                    make("dd", { dir: "auto" }, parted(first.b, first.at)),
                  )
                : first.what === "the request"
                  ? make("p.quiet", {}, "The requests differ; their wire shows where.")
                  : null,
            ]
          : make("p", {}, make("strong", {}, "They are alike"), " in all that was decided."),
      ),
    ),
    make("div.sides", {}, columns),
  );
  await Promise.all(braids.map((braid, i) => braid.grow([found.a, found.b][i].steps)));
  const same = new Set(found.same);
  columns.forEach((each, i) => {
    for (const step of each.querySelectorAll(".step"))
      step.classList.toggle("alike", same.has(Number(step.dataset.step)));
    if (!first?.step) return;
    const step = each.querySelector(`.step[data-step="${first.step}"]`);
    const item = step && [...step.querySelectorAll(".item")].find((found) => found.dataset.item === first.items[i]);
    const mark = item || step;
    if (!mark) return;
    mark.classList.add("differs");
    mark.tabIndex = -1;
    mark.prepend(make("p.differs-word", {}, "first difference"));
  });
  // Two steps of the same number have the same id: in this page they have none.
  place.querySelectorAll(".step").forEach((each) => each.removeAttribute("id"));
  document.title = "Two runs side by side · Plait";
};
