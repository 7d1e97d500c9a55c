// The list of runs: live ones on top, filters, search, pages; what happens elsewhere comes in as it does.
import { announce, button, chip, duration, flat, line, link, make, many, money, number, shown, when } from "./dom.js";

const FILTERS = [
  ["status", "How it ended"],
  ["loop", "Loop"],
  ["agent", "Agent"],
  ["session", "Session"],
  ["model", "Model"],
];
const STATUSES = ["answered", "failed", "stopped", "cancelled", "waiting", "crashed", "running", "interrupted"];
const stateOf = (run) => `${run.status} ${run.updated} ${run.grade?.mark || ""}`;
const used = (run) => (run.in || run.out ? `${number((run.in || 0) + (run.out || 0))} tokens` : "");

// Maximum number of runs in the list. Without it, a list that is open for days would keep growing.
const KEPT = 300;

// The two runs to show side by side, kept while the user looks at other pages.
const chosen = [];

// The filter that the user just changed. It keeps the focus when the list is drawn again.
let touched = "";

export const runsPage = async (place, source, wanted) => {
  const back = touched;
  const about = await source.about();
  const choices = { ...about.choices, statuses: STATUSES, agents: about.agents.map((each) => each.name) };
  const search = make("input", {
    type: "search",
    id: "search",
    value: wanted.words || "",
    placeholder: "Search",
    autocomplete: "off",
    "aria-describedby": "search-hint",
  });
  const plural = { status: "statuses", loop: "loops", agent: "agents", session: "sessions", model: "models" };
  const selects = FILTERS.map(([name, label]) => {
    const known = choices[plural[name]] || [];
    const options = wanted[name] && !known.includes(wanted[name]) ? [wanted[name], ...known] : known;
    const select = make(
      "select",
      { id: `filter-${name}` },
      make("option", { value: "" }, "any"),
      options.map((each) => make("option", { value: each, selected: wanted[name] === each }, each)),
    );
    select.addEventListener("change", () => {
      touched = select.id;
      apply();
    });
    return [name, label, select];
  });
  const apply = () => {
    const values = Object.fromEntries(
      [["words", search.value.trim()], ...selects.map(([name, , select]) => [name, select.value])].filter(
        ([, value]) => value,
      ),
    );
    const next = `#/${Object.keys(values).length ? `?${new URLSearchParams(values)}` : ""}`;
    if (next !== location.hash) location.hash = next;
  };
  const filtered = selects.some(([name]) => wanted[name]);
  const form = make(
    "form.filters",
    { role: "search", "aria-label": "Runs" },
    make(
      "div.field.search",
      {},
      make("label", { for: "search" }, "Search"),
      search,
      make(
        "p.hint",
        { id: "search-hint" },
        "Every word must occur in the question, the answer or the reason. Enter searches.",
      ),
    ),
    make(
      "details.more-filters",
      { open: filtered || back !== "" },
      make("summary", {}, "Filter"),
      make(
        "div.selects",
        {},
        selects.map(([name, label, select]) =>
          make("div.field", {}, make("label", { for: `filter-${name}` }, label), select),
        ),
      ),
    ),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });

  const live = make("ol.runs"),
    list = make("ol.runs"),
    state = make("p.quiet", { role: "status" }),
    connectionNotice = make("p.lost", { role: "status" });
  const liveSection = make(
    "section",
    { "aria-labelledby": "live-title" },
    make("h2", { id: "live-title" }, "Running, or waiting for you"),
    live,
  );
  const more = button(
    "Show more",
    async () => {
      more.disabled = true;
      try {
        await page();
      } catch (error) {
        connectionNotice.textContent = error.message;
      } finally {
        more.disabled = false;
      }
    },
    { class: "more-runs", hidden: true },
  );
  const compare = make("div.compare", { role: "region", "aria-label": "Side by side", hidden: true });
  let last = 0,
    most = KEPT;

  const tellChosen = () => {
    compare.hidden = !chosen.length;
    const go =
      chosen.length === 2
        ? link("Look at them side by side", `#/sides/${chosen.map(encodeURIComponent).join("/")}`, {
            class: "main-act",
          })
        : make("span", {}, "Choose one more to look at both side by side.");
    compare.replaceChildren(
      go,
      " ",
      button("Clear", () => {
        chosen.length = 0;
        document.querySelectorAll(".pick input").forEach((each) => {
          each.checked = false;
        });
        tellChosen();
      }),
    );
  };
  const pick = (run) => {
    const box = make("input", {
      type: "checkbox",
      checked: chosen.includes(run.run),
      "aria-label": `Side by side: ${flat(run.question, 60)}`,
    });
    box.addEventListener("change", () => {
      const at = chosen.indexOf(run.run);
      if (box.checked && at < 0) chosen.push(run.run);
      if (!box.checked && at >= 0) chosen.splice(at, 1);
      while (chosen.length > 2) {
        const out = chosen.shift();
        const other = [...document.querySelectorAll("li.run")]
          .find((each) => each.dataset.run === out)
          ?.querySelector(".pick input");
        if (other) other.checked = false;
      }
      tellChosen();
    });
    return make("label.pick", { title: "Choose for side by side" }, box);
  };
  const drawn = (run) => {
    const said =
      run.answer ||
      (run.status === "waiting" ? run.reason : run.answer === "" && run.status !== "running" ? run.reason : "");
    return make(
      "li.run",
      { "data-run": run.run, "data-n": run.n, "data-state": stateOf(run) },
      pick(run),
      make(
        "div.run-body",
        {},
        make("h3", {}, link(make("bdi", {}, shown(flat(run.question, 240))), `#/runs/${encodeURIComponent(run.run)}`)),
        said ? make("p.said", {}, make("bdi", {}, shown(flat(said, 240)))) : null,
        line(
          "facts-line",
          chip(run),
          make("bdi", {}, shown(run.loop)),
          run.agent ? make("bdi", {}, shown(run.agent)) : "",
          run.models.slice(0, 2).map((each) => make("bdi", {}, shown(each))),
          run.session ? make("bdi", { title: run.session }, flat(run.session, 24)) : "",
          run.parent ? `fork at step ${run.fork_at}` : "",
          run.steps ? many(run.steps, "step") : "",
          used(run),
          duration(run.seconds),
          run.cost === null || run.cost === undefined ? "" : money(run.cost),
          when(run.started),
        ),
      ),
    );
  };
  const isLive = (run) => run.status === "running" || run.status === "waiting";
  const tidy = () => {
    liveSection.hidden = !live.children.length;
    state.textContent =
      list.children.length || live.children.length
        ? ""
        : wanted.words || filtered
          ? "No run is like that."
          : "There is no run yet. Start one, or run `plait run`.";
  };
  const page = async () => {
    const before = list.children.length;
    const found = await source.runs({ ...wanted, before: last });
    if (!last) live.replaceChildren(...found.live.map(drawn));
    const there = new Set([...list.children].map((each) => each.dataset.run));
    list.append(
      ...found.runs.filter((run) => !there.has(run.run) && (!isLive(run) || wanted.words || filtered)).map(drawn),
    );
    last = found.runs.at(-1)?.n || last;
    most = Math.max(KEPT, list.children.length);
    more.hidden = !found.more;
    tidy();
    if (before) list.children[before]?.querySelector("a").focus();
  };
  // Removes the oldest runs. "Show more" brings them back.
  const trim = () => {
    while (list.children.length > most) {
      last = Math.max(last, Number(list.lastElementChild.dataset.n) + 1);
      list.lastElementChild.remove();
      more.hidden = false;
    }
  };
  // With filters, the list gets no new runs; only the runs in it change.
  const take = (news) => {
    const still = wanted.words || filtered;
    for (const run of news.runs) {
      const there = [...place.querySelectorAll("li.run")].find((each) => each.dataset.run === run.run);
      if (there && there.dataset.state === stateOf(run)) continue;
      const focused = there?.contains(document.activeElement);
      const item = drawn(run);
      if (there) {
        if (isLive(run) === live.contains(there) || still) there.replaceWith(item);
        else {
          there.remove();
          (isLive(run) ? live : list).prepend(item);
        }
        if (focused) item.querySelector("a").focus();
      } else if (!still) {
        (isLive(run) ? live : list).prepend(item);
        announce(`${isLive(run) ? "A run began" : "A run ended"}: ${flat(run.question, 80)}`);
      }
    }
    trim();
    tidy();
  };
  place.replaceChildren(
    make(
      "header.list-head",
      {},
      make("h1", { tabindex: "-1" }, "Runs"),
      link("Start a run", "#/new", { class: "main-act" }),
    ),
    form,
    state,
    connectionNotice,
    compare,
    liveSection,
    make(
      "section",
      { "aria-labelledby": "all-title" },
      make("h2", { id: "all-title" }, wanted.words || filtered ? "What was found" : "Earlier"),
      list,
      more,
    ),
  );
  // After two changes in a row, only the list of the last one is shown.
  if (place.isConnected) touched = "";
  if (back) place.querySelector(`#${back}`).focus();
  tellChosen();
  document.title = "Runs · Plait";
  await page();
  return {
    leave: source.watchRuns(take, (gone) => {
      connectionNotice.textContent = gone ? "The connection is lost; trying again." : "";
    }),
    search,
  };
};
