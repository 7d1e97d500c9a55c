// The table of runs: sorted, filtered and searched by the address; what happens elsewhere comes in as it does.
import { filterLinks, improveActs } from "./improve.js";
import { announce, button, chip, duration, flat, line, link, make, number, shown, tokens, when } from "./dom.js";

const STATUSES = ["answered", "failed", "stopped", "cancelled", "waiting", "crashed", "queued", "running", "interrupted"];
// The filters of the address: name, label, and the values to choose from (a name of `about.choices`, or the values).
const FILTERS = [
  ["status", "Status", STATUSES],
  ["agent", "Agent", "agents"],
  ["loop", "Loop", "loops"],
  ["model", "Model", "models"],
  ["user", "User", "users"],
  ["tag", "Tag", "tags"],
  ["session", "Session", "sessions"],
  ["grade", "Grade", ["right", "wrong"]],
  ["rated", "Rating", ["good", "bad"]],
  ["since", "Since", null, "7d, or 2026-11-20"],
  ["until", "Until", null, "1d, or 2026-11-20"],
  ["min_cost", "At least USD", null, "0.05"],
  ["max_cost", "At most USD", null, "1"],
];
const SORTS = [
  ["started", "newest first"],
  ["-started", "oldest first"],
  ["cost", "most expensive first"],
  ["-cost", "cheapest first"],
  ["tokens", "most tokens first"],
  ["-tokens", "fewest tokens first"],
  ["seconds", "slowest first"],
  ["-seconds", "fastest first"],
  ["steps", "most steps first"],
  ["-steps", "fewest steps first"],
];
const text = (value) => (value ? make("bdi", { title: flat(value) }, shown(flat(value, 60))) : "");
// The columns: head, class, content, and what sorts by it. A column of texts is hidden while no run has one.
const COLUMNS = [
  ["Status", "status", (run) => chip(run, true)],
  ["Question", "asked", (run) => question(run)],
  ["Agent", "word", (run) => text(run.agent)],
  ["Loop", "word.minor", (run) => text(run.loop)],
  ["Model", "word.minor", (run) => text(run.models.join(", "))],
  ["User", "word", (run) => text(run.user)],
  ["Tags", "word.minor", (run) => text(run.tags.join(", "))],
  ["Session", "word.minor", (run) => text(run.session)],
  ["Steps", "number.minor", (run) => (run.steps ? number(run.steps) : ""), "steps"],
  ["Tokens", "number", (run) => (run.in || run.out ? number(run.in + run.out) : ""), "tokens"],
  ["USD", "number", (run) => (run.cost === null || run.cost === undefined ? "" : dollars(run.cost)), "cost"],
  ["Time", "number", (run) => duration(run.seconds), "seconds"],
  ["Started", "number", (run) => when(run.started, true), "started"],
];
const UNITS = { Steps: "steps", Tokens: "tokens", USD: "USD" };
const dollars = (usd) => (usd === 0 || usd >= 0.0001 ? usd.toFixed(4) : String(Number(usd.toPrecision(2))));
const question = (run) => [
  link(make("bdi", {}, shown(flat(run.question, 240))), `#/runs/${encodeURIComponent(run.run)}`, {
    title: flat(run.answer || run.reason || "", 400) || null,
  }),
  run.parent ? make("span.quiet", {}, ` fork at ${run.fork_at}`) : null,
];
const stateOf = (run) => `${run.status} ${run.updated} ${run.grade?.mark || ""} ${run.rating}`;
const isLive = (run) => run.status === "running" || run.status === "waiting";

const PAGE = 60;
// Maximum number of runs in the list. Without it, a list that is open for days would keep growing.
const KEPT = 300;

// The selected runs by id, kept while the user looks at other pages.
const chosen = new Map();
// What can be done with them: each function gets the data source and the runs, and returns an element or null.
const selectionActs = [
  (_, runs) =>
    runs.length === 2
      ? link("Side by side", `#/sides/${runs.map((run) => encodeURIComponent(run.run)).join("/")}`, {
          class: "main-act",
        })
      : null,
  improveActs,
];

// The filter that the user just changed, which keeps the focus when the list is drawn again, and the open filters.
let touched = "",
  isOpen = false;

export const addressOf = (wanted) => {
  const values = Object.entries(wanted).flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
  const query = new URLSearchParams(values.filter(([, value]) => value !== "" && value !== undefined));
  return `#/${query.size ? `?${query}` : ""}`;
};

export const runsPage = async (place, source, wanted) => {
  const back = touched;
  const ask = () => source.runs({ ...wanted, before: last || "", limit: PAGE });
  let last = 0,
    most = KEPT;
  let [about, first] = await Promise.all([source.about(), ask()]);
  const choices = about.choices;
  choices.agents = [...new Set([...about.agents.map((each) => each.name), ...choices.agents])];
  const { sort = "", words = "", ...filters } = wanted;
  const isFiltered = Object.keys(wanted).length > 0;
  const go = (changes) => {
    const next = addressOf({ ...wanted, words: search.value.trim(), ...changes });
    if (next !== location.hash && !(next === "#/" && !location.hash)) location.hash = next;
  };
  const search = make("input", {
    type: "search",
    id: "search",
    value: words,
    placeholder: "Search",
    autocomplete: "off",
    "aria-label": "Search",
    title: "Every word must occur in the question, the answer or the reason. Enter searches.",
  });
  const field = (name, label, control) => {
    control.addEventListener("change", () => {
      touched = control.id;
      go({ [name]: control.value });
    });
    return make("div.field", {}, make("label", { for: control.id }, label), control);
  };
  const select = (id, now, options) =>
    make("select", { id }, options.map(([value, label]) => make("option", { value, selected: now === value }, label)));
  const fields = FILTERS.map(([name, label, known, example]) => {
    const now = [wanted[name] || ""].flat()[0];
    if (known === null)
      return field(name, label, make("input", { id: `filter-${name}`, value: now, placeholder: example }));
    const values = Array.isArray(known) ? known : choices[known];
    const all = now && !values.includes(now) ? [now, ...values] : values;
    const options = [["", "any"], ...all.map((each) => [each, flat(each, 60)])];
    return field(name, label, select(`filter-${name}`, now, options));
  });
  fields.push(field("sort", "Order", select("sort", sort || "started", SORTS)));
  const panel = make("div.selects", { id: "filters" }, fields);
  const opener = button(
    "Filter",
    () => {
      isOpen = !isOpen;
      showPanel();
    },
    { class: "filter-button", "aria-controls": "filters" },
  );
  const showPanel = () => {
    panel.hidden = !isOpen;
    opener.setAttribute("aria-expanded", String(isOpen));
  };
  showPanel();
  const form = make("form.filters", { role: "search", "aria-label": "Runs" }, search, opener);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go({});
  });
  const named = [["words", "Words"], ...FILTERS];
  const chips = Object.entries({ words, ...filters }).flatMap(([name, value]) =>
    [value].flat().map((each) => {
      if (!each) return null;
      const label = named.find(([known]) => known === name)?.[1] || name;
      const rest = [value].flat().filter((other) => other !== each);
      return button(
        [`${label}: `, make("bdi", {}, shown(flat(each, 40))), make("span", { "aria-hidden": "true" }, " ×")],
        () => {
          if (name === "words") search.value = "";
          go({ [name]: rest });
        },
        { class: "filter-chip", "aria-label": `Remove the filter ${label}: ${flat(each, 40)}` },
      );
    }),
  );

  const live = make("tbody.live", { role: "rowgroup" }),
    list = make("tbody.all", { role: "rowgroup" }),
    state = make("p.quiet", { role: "status" }),
    connectionNotice = make("p.lost", { role: "status" });
  const head = ([name, kind, , sorts]) => {
    const isNow = sorts && (sort || "started").replace("-", "") === sorts;
    const isUp = sort.startsWith("-");
    return make(
      `th.${kind}`,
      { scope: "col", role: "columnheader", "aria-sort": isNow ? (isUp ? "ascending" : "descending") : null },
      sorts
        ? button(
            [name, make("span.arrow", { "aria-hidden": "true" }, isNow ? (isUp ? " ↑" : " ↓") : "")],
            () => go({ sort: isNow && !isUp ? `-${sorts}` : sorts === "started" ? "" : sorts }),
            { title: `Sort by ${name === "USD" ? "cost" : name.toLowerCase()}` },
          )
        : name,
    );
  };
  const all = make("input", { type: "checkbox", "aria-label": "Select all runs of the list" });
  all.addEventListener("change", () => {
    for (const box of table.querySelectorAll(".run .pick input"))
      if (box.checked !== all.checked) box.click();
  });
  const table = make(
    "table.table",
    { role: "table", "aria-label": "Runs" },
    make(
      "thead",
      { role: "rowgroup" },
      make("tr", { role: "row" }, make("th.pick", { scope: "col", role: "columnheader" }, all), COLUMNS.map(head)),
    ),
    live,
    list,
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
  const selection = make("div.selection", { role: "region", "aria-label": "Selected runs", hidden: true });

  const tellChosen = () => {
    const runs = [...chosen.values()];
    selection.hidden = !runs.length;
    selection.replaceChildren(
      make("span", {}, `${number(runs.length)} selected`),
      ...selectionActs.map((act) => act(source, runs)).filter(Boolean),
      button("Clear", () => {
        chosen.clear();
        table.querySelectorAll(".pick input").forEach((each) => {
          each.checked = false;
        });
        tellChosen();
      }),
    );
  };
  const drawn = (run) => {
    const box = make("input", {
      type: "checkbox",
      checked: chosen.has(run.run),
      "aria-label": `Select: ${flat(run.question, 60)}`,
    });
    box.addEventListener("change", () => {
      if (box.checked) chosen.set(run.run, run);
      else chosen.delete(run.run);
      tellChosen();
    });
    return make(
      "tr.run",
      { role: "row", "data-run": run.run, "data-n": run.n, "data-state": stateOf(run) },
      make("td.pick", { role: "cell" }, make("label", {}, box)),
      COLUMNS.map(([name, kind, content]) => {
        const cell = make(`td.${kind}`, { role: "cell", "data-unit": UNITS[name] }, content(run));
        if (name === "Tokens") cell.title = tokens(run);
        return cell;
      }),
    );
  };
  const tidy = () => {
    COLUMNS.forEach(([, kind], i) => {
      if (!kind.startsWith("word")) return;
      const cells = [...table.rows].map((row) => row.cells[i + 1]);
      const isEmpty = !cells.slice(1).some((cell) => cell.hasChildNodes());
      for (const cell of cells) cell.hidden = isEmpty;
    });
    const isEmpty = !list.children.length && !live.children.length;
    table.hidden = isEmpty;
    state.textContent = !isEmpty
      ? ""
      : isFiltered
        ? "No run is like that."
        : "There is no run yet. Start one, or run `plait run`.";
  };
  const page = async () => {
    const before = list.children.length;
    const found = first || (await ask());
    first = null;
    if (!last) live.replaceChildren(...found.live.map(drawn));
    const there = new Set([...list.children].map((each) => each.dataset.run));
    list.append(...found.runs.filter((run) => !there.has(run.run) && (!isLive(run) || isFiltered)).map(drawn));
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
  // With filters or another order, the list gets no new runs; only the runs in it change.
  const take = (news) => {
    for (const run of news.runs) {
      const there = [...place.querySelectorAll("tr.run")].find((each) => each.dataset.run === run.run);
      if (there && there.dataset.state === stateOf(run)) continue;
      const focused = there?.contains(document.activeElement);
      const item = drawn(run);
      if (there) {
        if (isLive(run) === live.contains(there) || isFiltered) there.replaceWith(item);
        else {
          there.remove();
          (isLive(run) ? live : list).prepend(item);
        }
        if (focused) item.querySelector("a").focus();
      } else if (!isFiltered) {
        (isLive(run) ? live : list).prepend(item);
        announce(`${isLive(run) ? "A run began" : "A run ended"}: ${flat(run.question, 80)}`);
      }
    }
    if (!isFiltered) trim();
    tidy();
  };
  place.classList.add("wide");
  place.replaceChildren(
    make(
      "header.list-head",
      {},
      make("h1", { tabindex: "-1" }, "Runs"),
      form,
      link("New conversation", "chat", { class: "main-act" }),
    ),
    panel,
    make("div.filter-chips", {}, chips, (await source.me()).roles.includes("change") ? filterLinks(wanted) : null),
    state,
    connectionNotice,
    table,
    more,
    selection,
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
