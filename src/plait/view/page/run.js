// The page of one run: the outcome on top, then the steps, which grow while the run continues.
import { actsOf, waitForm } from "./acts.js";
import { Braid, braidOptions, stepActs } from "./braid.js";
import {
  announce,
  button,
  chip,
  duration,
  endOf,
  flat,
  line,
  link,
  make,
  many,
  money,
  number,
  problem,
  shown,
  tokens,
  when,
} from "./dom.js";
import { finder } from "./find.js";
import { planOf } from "./plan.js";
import { rateControls } from "./rate.js";
import { long } from "./text.js";
import { Waterfall } from "./waterfall.js";

const prefersLessMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const fact = (name, ...value) => [make("dt", {}, name), make("dd", {}, value)];

const phaseSection = (run) => {
  if (!run.phases.length) return null;
  const cells = (each) => [
    make(
      "th",
      { scope: "row" },
      shown(each.phase || "?"),
      each.model ? make("small", {}, make("bdi", {}, shown(each.model))) : null,
    ),
    make("td", {}, number(each.calls)),
    make("td", {}, each.model ? number(each.usage.input_tokens) : ""),
    make("td", {}, each.model ? number(each.usage.output_tokens) : ""),
    make("td", {}, duration(each.seconds)),
    make("td", {}, each.model ? (each.cost_usd === null ? "?" : money(each.cost_usd).replace(" USD", "")) : ""),
  ];
  const heads = ["Phase", "Calls", "In", "Out", "Time", "USD"];
  return make(
    "section",
    {},
    make("h2", { id: "phases-title" }, "What it took"),
    make(
      "div.box",
      { tabindex: "0", role: "region", "aria-labelledby": "phases-title" },
      make(
        "table",
        {},
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            heads.map((each) => make("th", { scope: "col" }, each)),
          ),
        ),
        make(
          "tbody",
          {},
          run.phases.map((each) => make("tr", {}, cells(each))),
        ),
      ),
    ),
    run.estimated ? make("p.quiet", {}, "Tokens are estimated where the provider did not report them.") : null,
  );
};

const aboutSection = (run, source) => {
  const live = source.live;
  const settings = Object.entries(run.settings).filter(
    ([name, value]) => value !== null && value !== "" && !["shown", "agent"].includes(name),
  );
  const words = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const runLink = (id, ...more) => (live ? link(id, `#/runs/${encodeURIComponent(id)}`) : make("span", {}, id));
  return make(
    "section",
    {},
    make("h2", { id: "about-title" }, "About"),
    make(
      "dl",
      {},
      fact("Run", make("code", {}, run.run)),
      run.agent ? fact("Agent", make("bdi", {}, shown(run.agent))) : [],
      fact(
        "Models",
        Object.entries(run.phase_models).map(([phase, model]) =>
          make("div", {}, phase ? `${phase}: ` : "", make("bdi", {}, shown(model))),
        ),
      ),
      run.session
        ? fact(
            "Session",
            live
              ? link(run.session, `#/?session=${encodeURIComponent(run.session)}`)
              : make("bdi", {}, shown(run.session)),
            run.history ? ` (shown ${many(run.history, "turn")})` : "",
          )
        : [],
      run.parent
        ? fact(
            "Fork of",
            runLink(run.parent),
            ` at step ${run.fork_at}`,
            live
              ? [" ", link("side by side", `#/sides/${encodeURIComponent(run.parent)}/${encodeURIComponent(run.run)}`)]
              : null,
          )
        : [],
      run.forks.length
        ? fact(
            "Forks",
            run.forks.map((each) => make("div", {}, runLink(each))),
          )
        : [],
      run.caller ? fact("Child of", runLink(run.caller)) : [],
      run.children.length
        ? fact(
            "Child runs",
            run.children.map((each) =>
              make("div", {}, runLink(each.run), " ", each.status, " ", make("bdi", {}, shown(each.question))),
            ),
          )
        : [],
      run.tree
        ? fact(
            "With child runs",
            many(run.tree.requests, "request"),
            ", ",
            number(run.tree.input_tokens + run.tree.output_tokens),
            " tokens",
            run.tree.cost_usd === null ? "" : [", ", money(run.tree.cost_usd)],
          )
        : [],
      run.attachments.length
        ? fact(
            "Attached",
            run.attachments.map((each) => make("div", {}, make("bdi", {}, shown(each)))),
          )
        : [],
      run.files.length
        ? fact(
            "Files",
            run.files.map((each) => {
              const name = live
                ? link(each.id, source.file(run.run, each.id), { download: true })
                : make("bdi", {}, shown(each.id));
              return make("div", {}, name, " ", make("bdi", {}, shown(each.about)));
            }),
          )
        : [],
      fact(
        "Tools",
        run.tools.length
          ? make(
              "details",
              {},
              make("summary", {}, many(run.tools.length, "tool")),
              make(
                "ul.tools",
                {},
                run.tools.map((each) =>
                  make("li", {}, make("code", {}, shown(each.name)), " ", make("span.quiet", {}, shown(each.what))),
                ),
              ),
            )
          : "none",
      ),
      fact(
        "Settings",
        make(
          "details",
          {},
          make("summary", {}, "as it was started"),
          make(
            "dl.settings",
            {},
            Object.entries(run.options).map(([name, value]) => fact(name, shown(words(value)))),
            settings.map(([name, value]) => fact(name, shown(words(value)))),
          ),
        ),
      ),
      fact("Started", when(run.started)),
      run.plait ? fact("Plait", run.plait) : [],
    ),
  );
};

const outcomeParts = (run) => {
  const rated = run.rating
    ? make("p.why", {}, `A user rated this run as ${run.rating}`, run.rating_why ? shown(`: ${run.rating_why}`) : ".")
    : null;
  if (run.answer !== null && run.answer !== undefined) {
    return [
      long([run.answer, 0], { className: "prose", label: "answer" }),
      run.status === "stopped" ? make("p.why", {}, "Answered early: ", shown(run.reason || "")) : null,
      run.grade?.why
        ? make("p.why", {}, "The comparison graded this run as ", shown(`${run.grade.mark}: ${run.grade.why}`))
        : null,
      rated,
    ];
  }
  if (run.status === "running") return null;
  return [
    rated,
    run.reason ? make("div.why", {}, long([run.reason, 0], { className: "prose", label: "reason" })) : null,
    run.hint ? make("p.why", {}, shown(run.hint)) : null,
  ];
};

export const runPage = async (place, source, id, { toStep = null, isOverTime = false } = {}) => {
  const data = await source.run(id);
  let run = data.run,
    waits = data.waiting || [],
    stopWatching = null,
    hasLeft = false;
  const title = make(
    "h1",
    { tabindex: "-1" },
    make("bdi", {}, shown(run.question.length > 2000 ? `${run.question.slice(0, 2000)}…` : run.question)),
  );
  const state = make("div.state"),
    answer = make("section.outcome", { "aria-label": "How it ended" }),
    acts = make("div.run-acts"),
    side = make("aside.beside", { "aria-label": "About this run" }),
    plan = make("div.plan-place");
  const list = make("ol.steps"),
    connectionNotice = make("p.lost", { role: "status" });
  const may = data.may || {};
  const mayAnswer = (ask) => (ask === "question" ? may.answer : may.approve);
  const fork = may.fork
    ? async (step, focus) => (await import("./change.js")).forkDialog(source, run, step, focus)
    : null;
  const addTask = async () => (await import("./datasets.js")).addTaskDialog(source, run);
  const braid = new Braid(list, {
    ...braidOptions(source, id),
    answer: () => run.answer,
    heads: (step) => stepActs(source, id, step, fork),
    results: (item) =>
      fork && item.state === "done"
        ? button("Edit and run from here", () => fork(item.step + 1, item.id.slice(1)), { class: "act" })
        : null,
    waits: (item) => {
      if (!source.live) return make("p.quiet", {}, "It waits for an answer.");
      const asked = waits.find((each) => each.item === item.id);
      if (asked && !mayAnswer(item.ask))
        return make(
          "p.quiet",
          {},
          `It waits for a user with the role ${item.ask === "question" ? "change" : "approve"}.`,
        );
      return asked ? waitForm(source, run, item, asked.question, reopen) : null;
    },
  });

  let follows = false;
  const follow = button(
    "Follow",
    () => {
      follows = !follows;
      follow.setAttribute("aria-pressed", String(follows));
      if (follows) scrollDown();
    },
    { class: "follow", "aria-pressed": "false", hidden: true },
  );
  const scrollDown = () =>
    scrollTo({ top: document.documentElement.scrollHeight, behavior: prefersLessMotion() ? "auto" : "smooth" });

  const drawHead = () => {
    document.title = `${flat(run.question, 60)} · Plait`;
    const clock = run.status === "running" ? run.work : run.seconds;
    state.replaceChildren(
      chip(run),
      line(
        "facts-line",
        make("bdi", {}, shown(run.loop)),
        run.models.map((each) => make("bdi", {}, shown(each))),
        many(run.steps, "step"),
        many(run.calls, "model call"),
        tokens(run),
        run.status === "running" && clock < 0.0005 ? "waiting for the model" : duration(clock),
        money(run.cost),
        when(run.started),
      ),
    );
    const how = outcomeParts(run);
    answer.replaceChildren(...(how || []).filter(Boolean));
    answer.hidden = !how;
    answer.className = `outcome is-${endOf(run)}`;
    // Keeps a button that means the same: a button that is replaced while the user presses it gets no click.
    const now = { ...may, answer: waits.some((each) => mayAnswer(each.ask)) };
    if (source.live && acts.dataset.of !== `${run.status} ${run.owner} ${now.answer}`) {
      acts.dataset.of = `${run.status} ${run.owner} ${now.answer}`;
      acts.replaceChildren(...actsOf(source, run, reopen, now));
      if (!["running", "waiting"].includes(run.status)) {
        if (fork) {
          const edit = button("Edit the question", () => fork(1, "question"));
          acts.firstChild.append(edit, button("Add to a data set", addTask));
        }
        if (may.change) acts.append(rateControls(source, run));
      }
    }
    // Keeps the details open that the user opened, while the run continues.
    const open = [...side.querySelectorAll("details")].map((each) => each.open);
    side.replaceChildren(...[phaseSection(run), aboutSection(run, source)].filter(Boolean));
    side.querySelectorAll("details").forEach((each, i) => {
      each.open = open[i] || false;
    });
    follow.hidden = run.status !== "running";
  };
  const drawPlan = (found) => {
    if (found) plan.replaceChildren(planOf(found));
  };
  const applyNews = (news) => {
    const before = run.status;
    if (news.run) run = news.run;
    const waitsChanged = news.waiting && JSON.stringify(news.waiting) !== JSON.stringify(waits);
    if (news.waiting) waits = news.waiting;
    for (const step of news.steps || []) braid.put(step);
    if (waitsChanged) redraw("wait");
    if (before !== run.status && run.answer) redraw("model");
    if (news.plan) drawPlan(news.plan);
    drawHead();
    growTime();
    const last = news.steps?.at(-1);
    if (before !== run.status)
      announce(
        `The run ${run.status === "waiting" ? "waits for you" : run.status === "running" ? "goes on" : run.status}.`,
      );
    else if (last?.items.length) announce(describeChange(last));
    if (follows) scrollDown();
  };
  // Forms of waiting items come and go with what the run waits for; one that somebody is filling in stays. A reply that
  // turns out to be the answer stands above.
  const redraw = (kind) => {
    const items = [...braid.items.values()].filter((item) => item.kind === kind);
    for (const item of kind === "model" ? items.slice(-1) : items) braid.put({ ...stepOf(item.step), items: [item] });
  };
  const heads = new Map();
  const stepOf = (n) => heads.get(n);
  const put = braid.put.bind(braid);
  braid.put = (step) => {
    heads.set(step.n, { ...step, items: [] });
    return put(step);
  };

  // -- the same run over time, which is read when somebody looks at it
  const time = make("div.time");
  let waterfall = null,
    later = null,
    growing = null;
  const growTime = () => {
    if (!isOverTime || later) return;
    waterfall ||= new Waterfall(time, source, id);
    const grow = () => {
      later = null;
      growing = waterfall.grow().catch((error) => time.replaceChildren(problem(error)));
    };
    if (waterfall.now) later = setTimeout(grow, 1000);
    else grow();
  };
  const tab = (words, value) =>
    button(words, () => {
      isOverTime = value;
      if (source.live) history.replaceState(null, "", `#/runs/${encodeURIComponent(id)}${value ? "/time" : ""}`);
      showView();
    });
  const tabs = make(
    "div.tabs",
    { role: "group", "aria-label": "How the run is shown" },
    tab("Steps", false),
    tab("Over time", true),
  );
  const showView = () => {
    [...tabs.children].forEach((each, i) => each.setAttribute("aria-pressed", String(isOverTime === Boolean(i))));
    list.hidden = isOverTime;
    time.hidden = !isOverTime;
    place.querySelector(".columns")?.classList.toggle("over-time", isOverTime);
    growTime();
  };
  const found = finder(
    (words) => source.search(id, words),
    (hit) => {
      if (isOverTime) tabs.children[0].click();
      const node = list.querySelector(`[data-item="${CSS.escape(hit.item)}"]`) || list.querySelector(`#step-${hit.step}`);
      list.querySelector(".is-found")?.classList.remove("is-found");
      node?.classList.add("is-found");
      node?.querySelectorAll("details").forEach((each) => {
        each.open = true;
      });
      node?.scrollIntoView({ block: "center" });
    },
  );

  const watch = () => {
    stopWatching?.();
    const broken = (gone) => {
      connectionNotice.textContent = gone ? "The connection is lost; trying again." : "";
    };
    const writing = (steps) => {
      braid.write(steps);
      if (follows) scrollDown();
    };
    stopWatching = source.watchRun && !hasLeft ? source.watchRun(id, data.seq, applyNews, broken, writing) : null;
  };
  async function reopen() {
    const news = await source.run(id);
    if (hasLeft) return;
    data.seq = news.seq;
    applyNews(news);
    watch();
  }

  place.replaceChildren(
    make(
      "header.run-head",
      {},
      make("p.crumbs", {}, source.live ? [link("Runs", "#/"), " / "] : null, make("code", {}, run.run)),
      title,
      state,
      answer,
      acts,
    ),
    make(
      "div.columns",
      {},
      make(
        "section.main",
        { "aria-labelledby": "steps-title" },
        plan,
        make("h2.unseen", { id: "steps-title" }, "Steps"),
        make("div.run-bar", {}, tabs, found.form),
        found.list,
        time,
        list,
        connectionNotice,
        follow,
      ),
      side,
    ),
  );
  showView();
  drawHead();
  drawPlan(data.plan);
  if (isOverTime) await growing; // the steps are drawn behind it
  await braid.grow(data.steps);
  if (["running", "waiting", "interrupted"].includes(run.status)) watch();
  const to = toStep && document.getElementById(`step-${toStep}`);
  if (to) {
    to.scrollIntoView({ block: "start" });
    to.querySelector("h3").focus({ preventScroll: true });
  }
  return {
    leave: () => {
      hasLeft = true;
      clearTimeout(later);
      stopWatching?.();
    },
    fork,
    turn: () => tabs.children[isOverTime ? 0 : 1].click(),
    search: found.input,
    found,
  };
};

const describeChange = (step) => {
  const item = step.items.at(-1);
  if (item.kind === "model")
    return item.state === "asking" ? `Step ${step.n}: a model is asked.` : `Step ${step.n}: the model has replied.`;
  if (item.kind === "call")
    return item.state === "done"
      ? `Step ${step.n}: observation from ${flat(item.tool, 40)}.`
      : `Step ${step.n}: ${flat(item.tool, 40)} is called.`;
  return `Step ${step.n}: ${flat(item.word || item.kind, 40)}.`;
};
