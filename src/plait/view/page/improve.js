// The pages with which people improve agents: how to get from one to the other, and what leads to them from the runs.
import { doing } from "./acts.js";
import { announce, button, line, link, many, pageAddress, withQuery } from "./dom.js";
import { html } from "./html.js";

// Each page: its name, the role that it needs, and what it is for.
const PAGES = {
  review: ["Review", "change", "Rate answers of recorded runs that nobody has rated. Nothing is run again."],
  changes: ["Changes", "change", `Recorded runs, made again with one change: each new answer beside the old one. To
    begin, select runs in the list and press Run a change. For one run, press Change and run again on its page.`],
  datasets: ["Data sets", "change", `Questions with expected answers, to compare agents on at any time. To add one,
    open a run and press Add to a data set.`],
  comparisons: ["Comparisons", "view", `Agents, loops and models on all questions of a data set, graded. The page of a
    data set has the command that makes one.`],
};

// The head of such a page: tabs to those that the user may open, and on a page that lists things what it is for.
export const improveHead = async (source, here, isList) => {
  const { roles } = await source.me();
  const open = Object.entries(PAGES).filter(([, [, role]]) => roles.includes(role));
  const tab = ([page, [words]]) =>
    link(words, pageAddress(page), { "aria-current": page === here && "page", class: "act" });
  const [title, , about] = PAGES[here];
  if (isList) document.title = `${title} · Plait`;
  return html`<header><nav class="tabs" aria-label="Improve">${open.map(tab)}</nav>
    ${isList && html`<h1 tabindex="-1">${title}</h1><p class="lede">${about}</p>`}</header>`;
};

// What there is of a kind. Each entry has [address, words], and then what else is to be said.
export const linkList = (entries) => {
  const item = ([[to, words], ...more]) => html`<li>${link(words, to)}${line("facts-line", more)}</li>`;
  const none = html`<p class="quiet">There is none yet.</p>`;
  return entries.length ? html`<ul class="plain-list">${entries.map(item)}</ul>` : none;
};

// What can be done with all runs of the list's filters.
export const filterLinks = ({ sort, ...filters }) => {
  const [review, change] = ["#/review", "#/changes/new"].map((page) => withQuery(page, filters));
  return html`<span class="buttons">${link("Review", review, { class: "act" })}
    ${change.includes("?") && link("Run a change", change, { class: "act" })}</span>`;
};

// What can be done with selected runs: run a change over them, rate them all.
export const improveActs = (source, runs) => {
  const ended = runs.filter((run) => !["running", "waiting", "queued"].includes(run.status));
  if (!ended.length) return null;
  const rate = async (words, good, control) => {
    for (const run of ended) await source.rate(run.run, { good });
    announce(`${many(ended.length, "run")} rated ${words}.`);
    control.textContent = `Rated ${words}`;
  };
  const rateButton = (words, good) =>
    button(`Rate ${words}`, ({ target }) => doing(place, () => rate(words, good, target)));
  const change = withQuery("#/changes/new", { run: ended.map((run) => run.run) });
  const place = html`<span class="buttons">${link("Run a change", change, { class: "main-act" })}
    ${rateButton("good", true)}${rateButton("bad", false)}</span>`;
  return place;
};
