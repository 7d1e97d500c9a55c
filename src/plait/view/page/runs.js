// The table of runs: sorted, filtered and searched by the address; what happens elsewhere comes in as it does.
import { field, select } from "./acts.js";
import {
  announce, chip, duration, flat, line, many, money, number, problem, runAddress, shown, STATES, tokens, when, withQuery,
} from "./dom.js";
import { html } from "./html.js";
import { filterLinks, improveActs } from "./improve.js";

const STATUSES = "answered failed stopped cancelled waiting crashed queued running interrupted".split(" ");
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
const LABELS = { words: "Words", ...Object.fromEntries(FILTERS) };
const SORTS = Object.entries({
  ...{ started: "newest first", "-started": "oldest first", cost: "most expensive first", "-cost": "cheapest first" },
  ...{ tokens: "most tokens first", "-tokens": "fewest tokens first", seconds: "slowest first" },
  ...{ "-seconds": "fastest first", steps: "most steps first", "-steps": "fewest steps first" },
});
const dollars = (usd) => (usd === 0 || usd >= 0.0001 ? usd.toFixed(4) : String(Number(usd.toPrecision(2))));
// The sum of several runs.
export const dollarsOf = (usd) =>
  usd < 1 ? money(usd) : `${usd.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })} USD`;
export const priceOf = (sum, none) =>
  sum.unpriced === sum.runs ? none : `${sum.unpriced ? "at least " : ""}${dollarsOf(sum.cost_usd)}`;
const text = (value) => value && html`<bdi title=${flat(value)}>${shown(flat(value, 60))}</bdi>`;
const question = (run) => {
  const ending = flat(run.answer || run.reason || "", 400);
  const asked = html`<a href=${runAddress(run.run)} title=${ending || null}><bdi>${shown(flat(run.question, 240))}</bdi></a>`;
  return [asked, run.parent && html`<span class="quiet"> fork at ${run.fork_at}</span>`];
};
const tagLinks = (run, wanted) =>
  run.tags.map((tag) => {
    const title = `Only runs with the tag ${flat(tag)}`;
    return html`<a href=${addressOf({ ...wanted, tag })} title=${title}><bdi>${shown(flat(tag, 60))}</bdi></a>`;
  });
// The columns: head, class, content, what sorts by it, and its unit. A column of words is hidden while no run has one.
const COLUMNS = [
  ["Status", "status", (run) => chip(run, true)],
  ["Question", "asked", question],
  ["Agent", "word", (run) => text(run.agent)],
  ["Loop", "word minor", (run) => text(run.loop)],
  ["Model", "word minor", (run) => text(run.models.join(", "))],
  ["User", "word", (run) => text(run.user)],
  ["Tags", "word minor", tagLinks],
  ["Session", "word minor", (run) => text(run.session)],
  ["Steps", "number minor", (run) => (run.steps ? number(run.steps) : ""), "steps", "steps"],
  ["Tokens", "number", (run) => (run.in || run.out ? number(run.in + run.out) : ""), "tokens", "tokens"],
  ["USD", "number", (run) => (run.cost === null ? "" : dollars(run.cost)), "cost", "USD"],
  ["Time", "number", (run) => duration(run.seconds), "seconds"],
  ["Started", "number", (run) => when(run.started, true), "started"],
];
const stateOf = (run) => `${run.status} ${run.updated} ${run.grade?.mark || ""} ${run.rating}`;
const isLive = (run) => run.status === "running" || run.status === "waiting";

const PAGE = 40;
// Maximum number of runs in the list. Without it, a list that is open for days would keep growing.
const KEPT = 300;
// Maximum number of runs that are summed up: 100,000 would keep the server busy for a second.
const SUMMED = 10_000;

// The selected runs by id, all of them in the table, and the filters that they were selected with. They are kept while
// the user looks at other pages.
const chosen = new Map();
let chosenOf = "";
// The filter that the user just changed, which keeps the focus when the list is drawn again, and the open filters.
let touched = "";
let isOpen = false;

// The address of this page with the filters that have a value.
export const addressOf = (wanted) => withQuery("#/", wanted);

export const runsPage = async (place, source, wanted) => {
  const back = touched;
  let last = 0;
  let most = KEPT;
  let later = null;
  const ask = () => source.runs({ ...wanted, before: last || "", limit: PAGE });
  const may = (role) => me.roles.includes(role);
  const { sort = "", words = "", ...filters } = wanted;
  const isFiltered = Object.keys(wanted).length > 0;
  const go = (changes) => {
    const next = addressOf({ ...wanted, words: search.value.trim(), ...changes });
    if (next !== location.hash && !(next === "#/" && !location.hash)) location.hash = next;
  };

  const filter = (name, label, control) => {
    control.addEventListener("change", () => {
      touched = control.id;
      go({ [name]: control.value });
    });
    return field(label, control);
  };
  const wordOf = (name, value, most) => (name === "status" && STATES[value]?.[1]) || flat(value, most);
  const panel = html`<div class="selects" id="filters" hidden=${!isOpen}></div>`;
  // The values to choose from may be thousands, so they are asked for when somebody wants to see them.
  const fillPanel = async () => {
    const { agents, choices } = await source.about();
    choices.agents = [...new Set([...agents.map((each) => each.name), ...choices.agents])];
    const fields = FILTERS.map(([name, label, known, example]) => {
      const id = `filter-${name}`;
      const [now] = [wanted[name] || ""].flat();
      if (example) return filter(name, label, html`<input id=${id} value=${now} placeholder=${example}>`);
      const values = Array.isArray(known) ? known : choices[known];
      const all = new Set(["", ...(values.includes(now) ? [] : [now]), ...values]);
      return filter(name, label, select(id, [...all].map((each) => [each, wordOf(name, each, 60) || "any"]), now));
    });
    const order = filter("sort", "Order", select("sort", SORTS, sort || "started"));
    panel.replaceChildren(...fields, order);
  };
  const open = ({ target }) => {
    isOpen = !isOpen;
    panel.hidden = !isOpen;
    target.setAttribute("aria-expanded", String(isOpen));
    if (isOpen && !panel.hasChildNodes()) fillPanel().catch((error) => panel.replaceChildren(problem(error)));
  };
  const [me, first] = await Promise.all([source.me(), ask(), isOpen && fillPanel()]);
  const search = html`<input type="search" id="search" value=${words} placeholder="Search" autocomplete="off"
    aria-label="Search" title="Every word must occur in the question, the answer or the reason. Enter searches.">`;
  const submit = (event) => {
    event.preventDefault();
    go({});
  };
  const removable = (name, value) => {
    const [label, short] = [LABELS[name] || name, wordOf(name, value, 40)];
    const remove = () => {
      if (name === "words") search.value = "";
      go({ [name]: [wanted[name]].flat().filter((each) => each !== value) });
    };
    return html`<button type="button" class="filter-chip" aria-label="Remove the filter ${label}: ${short}"
      onclick=${remove}>${label}: <bdi>${shown(short)}</bdi><span aria-hidden="true"> ×</span></button>`;
  };
  const removables = Object.entries({ words, ...filters }).flatMap(([name, values]) =>
    [values].flat().map((value) => value && removable(name, value)),
  );

  const live = html`<tbody class="live" role="rowgroup"></tbody>`;
  const list = html`<tbody class="all" role="rowgroup"></tbody>`;
  const state = html`<p class="quiet" role="status"></p>`;
  const summary = html`<div class="summary"></div>`;
  const connectionNotice = html`<p class="lost" role="status"></p>`;
  const head = ([name, kind, , sorts]) => {
    const isNow = sorts && (sort || "started").replace("-", "") === sorts;
    const isUp = sort.startsWith("-");
    const by = () => go({ sort: isNow && !isUp ? `-${sorts}` : sorts === "started" ? "" : sorts });
    const content = html`<button type="button" title="Sort by ${name === "USD" ? "cost" : name.toLowerCase()}"
      onclick=${by}>${name}</button>`;
    const order = isNow && (isUp ? "ascending" : "descending");
    return html`<th class=${kind} scope="col" role="columnheader" aria-sort=${order}>${sorts ? content : name}</th>`;
  };
  const pickAll = ({ target }) => {
    for (const box of table.querySelectorAll(".run .pick input")) if (box.checked !== target.checked) box.click();
  };
  const table = html`<table class="table" role="table" aria-label="Runs"><thead role="rowgroup"><tr role="row">
    <th class="pick" scope="col" role="columnheader">
      <input type="checkbox" aria-label="Select all runs of the list" onchange=${pickAll}></th>
    ${COLUMNS.map(head)}</tr></thead>${live}${list}</table>`;
  const showMore = async () => {
    more.disabled = true;
    try {
      await add(await ask());
    } catch (error) {
      connectionNotice.textContent = error.message;
    } finally {
      more.disabled = false;
    }
  };
  const more = html`<button type="button" class="more-runs" onclick=${showMore} hidden>Show more</button>`;

  const selection = html`<div class="selection" role="region" aria-label="Selected runs" hidden></div>`;
  const ofAll = may("change") && filterLinks(wanted);
  const tellChosen = () => {
    const clear = () => {
      chosen.clear();
      for (const box of table.querySelectorAll(".pick input")) box.checked = false;
      tellChosen();
    };
    const shownRuns = new Set([...table.querySelectorAll("tr.run")].map((each) => each.dataset.run));
    for (const id of chosen.keys()) if (!shownRuns.has(id)) chosen.delete(id);
    // Keeps a button that means the same, because it may be at work.
    const now = JSON.stringify([...chosen.values()].map((run) => [run.run, run.status]));
    if (selection.dataset.of === now) return;
    selection.dataset.of = now;
    const sides = `#/sides/${[...chosen.keys()].map(encodeURIComponent).join("/")}`;
    selection.hidden = !chosen.size;
    if (ofAll) ofAll.hidden = chosen.size > 0;
    selection.replaceChildren(html`<span>${number(chosen.size)} selected</span>
      ${chosen.size === 2 && html`<a class="main-act" href=${sides}>Side by side</a>`}
      ${may("change") && improveActs(source, [...chosen.values()])}<button type="button" onclick=${clear}>Clear</button>`);
  };
  const rowOf = (run) => {
    const pick = ({ target }) => {
      if (target.checked) chosen.set(run.run, run);
      else chosen.delete(run.run);
      tellChosen();
    };
    if (chosen.has(run.run)) chosen.set(run.run, run);
    const follow = ({ target }) => {
      if (!target.closest("a, button, label, .pick") && getSelection().isCollapsed) location.hash = runAddress(run.run);
    };
    const cell = ([name, kind, content, , unit]) => {
      const title = name === "Tokens" && tokens(run);
      return html`<td class=${kind} role="cell" data-unit=${unit} title=${title}>${content(run, wanted)}</td>`;
    };
    return html`<tr class="run" role="row" onclick=${follow} data-run=${run.run} data-n=${run.n} data-state=${stateOf(run)}>
      <td class="pick" role="cell"><label><input type="checkbox" checked=${chosen.has(run.run)} onchange=${pick}
        aria-label="Select: ${flat(run.question, 60)}"></label></td>${COLUMNS.map(cell)}</tr>`;
  };
  const tidy = () => {
    COLUMNS.forEach(([, kind], i) => {
      if (!kind.startsWith("word")) return;
      const cells = [...table.rows].map((row) => row.cells[i + 1]);
      const isEmpty = !cells.slice(1).some((cell) => cell.hasChildNodes());
      for (const cell of cells) cell.hidden = isEmpty;
    });
    table.hidden = !list.children.length && !live.children.length;
    const none = isFiltered ? "No run is like that." : "There is no run yet. Start one, or run `plait run`.";
    state.textContent = table.hidden ? none : "";
    tellChosen();
  };
  const add = (found) => {
    const before = list.children.length;
    if (!last) live.replaceChildren(...found.live.map(rowOf));
    const there = new Set([...list.children].map((each) => each.dataset.run));
    list.append(...found.runs.filter((run) => !there.has(run.run) && (!isLive(run) || isFiltered)).map(rowOf));
    last = found.runs.at(-1)?.n || last;
    most = Math.max(KEPT, list.children.length);
    more.hidden = !found.more;
    tidy();
    if (before) list.children[before]?.querySelector("a").focus();
  };
  // What all runs of the list used, of very many the newest. It is asked for when the list is there.
  const sumUp = async () => {
    later = null;
    if (!place.isConnected) return;
    const asked = source.costs({ words, ...filters, by: "day", limit: SUMMED });
    const { groups } = await asked.catch(() => ({ groups: [] }));
    const sum = (name) => groups.reduce((total, group) => total + group[name], 0);
    const linkTo = (status, count, words) =>
      count > 0 && !filters.status && html`<a href=${addressOf({ ...wanted, status })}>${number(count)} ${words}</a>`;
    const runs = sum("runs");
    const price = priceOf({ runs, unpriced: sum("unpriced"), cost_usd: sum("cost_usd") }, "price not known");
    const counted = runs < SUMMED ? many(runs, "run") : `The newest ${number(SUMMED)} runs`;
    const parts = [counted, price, linkTo("failed", sum("failed"), "failed"), linkTo("waiting", sum("waiting"), "wait")];
    summary.replaceChildren(runs ? line("quiet", ...parts) : "");
  };
  // With filters or another order, the list gets no new runs; only the runs in it change.
  const take = (news) => {
    for (const run of news.runs) {
      const there = [...table.querySelectorAll("tr.run")].find((each) => each.dataset.run === run.run);
      if (there ? there.dataset.state === stateOf(run) : isFiltered) continue;
      later ??= setTimeout(sumUp, 30_000);
      const isFocused = there?.contains(document.activeElement);
      const row = rowOf(run);
      const target = isLive(run) ? live : list;
      if (there && (isFiltered || target.contains(there))) there.replaceWith(row);
      else {
        there?.remove();
        target.prepend(row);
      }
      if (isFocused) row.querySelector("a").focus();
      if (!there) announce(`${isLive(run) ? "A run began" : "A run ended"}: ${flat(run.question, 80)}`);
    }
    // The oldest runs are removed. "Show more" brings them back.
    while (!isFiltered && list.children.length > most) {
      last = Math.max(last, Number(list.lastElementChild.dataset.n) + 1);
      list.lastElementChild.remove();
      more.hidden = false;
    }
    tidy();
  };
  place.classList.add("wide");
  place.replaceChildren(html`<header class="list-head"><h1 tabindex="-1">Runs</h1>
      <form class="filters" role="search" aria-label="Runs" onsubmit=${submit}>${search}
        <button type="button" class="filter-button" aria-controls="filters" aria-expanded=${String(isOpen)}
          onclick=${open}>Filter</button>${summary}</form>
      ${ofAll}${may("use") && html`<a class="main-act" href="chat">New conversation</a>`}</header>
    ${panel}<div class="filter-chips">${removables}</div>
    ${state}${connectionNotice}${table}${more}${selection}`);
  // After two changes in a row, only the list of the last one is shown.
  if (place.isConnected) touched = "";
  if (back) place.querySelector(`#${back}`).focus();
  if (chosenOf !== addressOf({ ...wanted, sort: "" })) chosen.clear();
  chosenOf = addressOf({ ...wanted, sort: "" });
  document.title = "Runs · Plait";
  add(first);
  const tellConnection = (isLost) => {
    connectionNotice.textContent = isLost ? "The connection is lost; trying again." : "";
  };
  sumUp();
  return { leave: source.watchRuns(take, tellConnection), search };
};
