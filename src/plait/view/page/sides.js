// Two runs side by side, with the first difference marked.
import { Braid } from "./braid.js";
import { sumsTable } from "./changes.js";
import { button, chip, duration, line, link, make, many, money, problem, shown, tokens } from "./dom.js";
import { openDialog } from "./improve.js";
import { marked } from "./wire.js";

// `at` counts characters by code point.
const parted = (text, at) => {
  const all = [...text],
    rest = all.slice(at).join("");
  return [make("span", {}, shown(all.slice(0, at).join(""))), make("mark", {}, rest ? shown(rest) : "(ends here)")];
};

// The requests of a step of both runs, with what differs.
const requestsDialog = async (source, a, b, n) => {
  const { requests } = await source.differences(a, b, n);
  const dialog = openDialog(
    "large",
    `Requests of step ${n}`,
    make("p.quiet", {}, make("ins", {}, "only in the second"), " ", make("del", {}, "only in the first")),
    requests.length ? null : make("p", {}, "Not both runs have a request in this step."),
    requests.map((each) => [
      make("h3", {}, shown(each.phase || "request")),
      each.before === each.after ? make("p.quiet", {}, "They are equal.") : null,
      make("pre.exact", { dir: "auto", tabindex: "0" }, marked(each.after, each.before, each.marks)),
    ]),
    make(
      "div.buttons",
      {},
      button("Close", () => dialog.close()),
    ),
  );
};

const column = (source, name, data, place, compare) => {
  const run = data.run,
    list = make("ol.steps"),
    top = make("header");
  const braid = new Braid(list, {
    rest: (item, field, from) => source.text(run.run, item, field, from),
    heads: (step) =>
      step.phases.length
        ? [
            link("wire", `#/runs/${encodeURIComponent(run.run)}/wire/${step.n}`, {
              class: "act",
              "aria-label": `Exact wire of step ${step.n} of run ${name}`,
            }),
            button("requests", () => compare(step.n), {
              class: "act",
              "aria-label": `Compare the requests of step ${step.n} of both runs`,
            }),
          ]
        : [],
  });
  braid.head = (run) => {
    const text = run.answer ?? run.reason ?? "";
    top.replaceChildren(
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
      ...(text ? [make("p.short-answer", {}, shown(text.length > 600 ? `${text.slice(0, 600)}…` : text))] : []),
    );
  };
  braid.head(run);
  place.append(top, list);
  return braid;
};

// What was changed, what it did to the answer, and what both took.
const summary = (a, b, names, differences) => {
  const changed = b.settings.changed || [];
  const used = (run, name) => (name === "tokens" ? run.in + run.out : run[name]);
  const over = [a, b].every((run) => run.status !== "running");
  return [
    changed.length ? make("p", {}, make("strong", {}, "Changed: "), make("bdi", {}, shown(changed.join(", ")))) : null,
    ["instructions", "answer"].map((each) =>
      differences?.[each]
        ? make(
            "details",
            { open: each === "answer" },
            make("summary", {}, `Difference of the ${each}${each === "answer" ? "s" : ""}`),
            make("pre.exact", { dir: "auto" }, marked(...differences[each])),
          )
        : null,
    ),
    over
      ? sumsTable(
          ["tokens", "cost", "seconds", "steps"].map((name) => [name, used(a, name), used(b, name)]),
          names,
        )
      : null,
  ];
};

export const sidesPage = async (place, source, a, b) => {
  let found = await source.sides(a, b);
  const names = found.b.run.parent === found.a.run.run ? ["Original", "Fork"] : ["A", "B"];
  const columns = names.map((name) => make("section.side", { "aria-label": `Run ${name}` }));
  const fail = (error) => top.prepend(problem(error));
  const compare = (n) => requestsDialog(source, a, b, n).catch(fail);
  const braids = columns.map((each, i) => column(source, names[i], [found.a, found.b][i], each, compare));
  const top = make("header.run-head");
  place.replaceChildren(top, make("div.sides", {}, columns));
  document.title = "Two runs side by side · Plait";
  let last = "";
  const mark = async () => {
    const differences = await source.differences(a, b);
    const now = JSON.stringify([found.first, found.same, differences, found.a.run, found.b.run]);
    if (now !== last) drawHead(place, top, found, names, differences); // else what is open or focused stays
    last = now;
    markSteps(place, columns, found);
  };
  await Promise.all(braids.map((braid, i) => braid.grow([found.a, found.b][i].steps)));
  await mark();
  // Follows runs that go on: their steps at once, what differs a little later.
  let later = null;
  const again = () => {
    later ||= setTimeout(async () => {
      later = null;
      found = await source.sides(a, b).catch(() => found);
      await mark().catch(() => {});
    }, 700);
  };
  const stops = [found.a, found.b].map((data, i) => {
    if (!["running", "waiting", "interrupted"].includes(data.run.status)) return () => {};
    const take = (news) => {
      for (const step of news.steps || []) braids[i].put(step);
      if (news.run) braids[i].head(news.run);
      again();
    };
    return source.watchRun(
      data.run.run,
      data.seq,
      take,
      () => {},
      (steps) => braids[i].write(steps),
    );
  });
  return {
    leave: () => {
      clearTimeout(later);
      for (const stop of stops) stop();
    },
  };
};

const drawHead = (place, top, found, names, differences) => {
  const first = found.first;
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
  top.replaceChildren(
    make("p.crumbs", {}, link("Runs", "#/"), " / side by side"),
    make("h1", { tabindex: "-1" }, "Two runs side by side"),
    ...(questions[0] === questions[1] ? [make("p.lede", {}, make("bdi", {}, shown(questions[0].slice(0, 600))))] : []),
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
                  make("dt", {}, names[0]),
                  make("dd", { dir: "auto" }, parted(first.a, first.at)),
                  make("dt", {}, names[1]),
                  make("dd", { dir: "auto" }, parted(first.b, first.at)),
                )
              : first.what === "the request"
                ? make("p.quiet", {}, "The requests differ: compare them at their step.")
                : null,
          ]
        : make("p", {}, make("strong", {}, "They are alike"), " in all that was decided."),
    ),
    ...summary(found.a.run, found.b.run, names, differences).flat().filter(Boolean),
  );
};

const markSteps = (place, columns, found) => {
  const first = found.first;
  place.querySelectorAll(".differs-word").forEach((each) => each.remove());
  place.querySelectorAll(".differs").forEach((each) => each.classList.remove("differs"));
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
};
