// What the pages share with which people improve agents.
import { announce, button, link, many } from "./dom.js";
import { html } from "./html.js";

const PAGES = { review: "Review", datasets: "Data sets", changes: "Changes" };

export const improveTabs = (here) => {
  const tab = ([page, words]) => link(words, `#/${page}`, { "aria-current": page === here && "page", class: "act" });
  return html`<nav class="tabs" aria-label="Improve">${Object.entries(PAGES).map(tab)}</nav>`;
};

// The page with all data sets, or all changes: each entry is its name, with words to show, and what else is to be said.
export const listPage = (place, page, about, entries) => {
  const item = ([[name, words = name], ...more]) =>
    html`<li>${link(words, `#/${page}/${encodeURIComponent(name)}`)}<span class="quiet"> ${more}</span></li>`;
  place.replaceChildren(html`<header>${improveTabs(page)}<h1 tabindex="-1">${PAGES[page]}</h1></header>
    <p class="quiet">${about}</p><ul class="plain-list">${entries.map(item)}</ul>
    ${!entries.length && html`<p>There is none yet: open ${link("the runs", "#/")} to begin.</p>`}`);
  document.title = `${PAGES[page]} · Plait`;
};

// Shows a dialog, which is gone when it is closed.
export const openDialog = (kind, title, ...inside) => {
  const dialog = html`<dialog class=${kind} aria-labelledby="dialog-title" onclose=${() => dialog.remove()}>
    <h2 id="dialog-title" tabindex="-1">${title}</h2>${inside}</dialog>`;
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("h2").focus();
  return dialog;
};
// The end of a dialog's form: what it does (null: nothing), and the way out.
export const closeButtons = (words) => {
  const close = (event) => event.target.closest("dialog").close();
  const act = words && html`<button type="submit" class="main-act">${words}</button>`;
  return html`<div class="buttons last">${act}${button("Close", close)}</div>`;
};

// What can be done with all runs of the list's filters.
export const filterLinks = (wanted) => {
  const values = Object.entries(wanted).flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
  const query = new URLSearchParams(values.filter(([name, value]) => value && name !== "sort"));
  return html`<span class="buttons">${link("Review", `#/review${query.size ? `?${query}` : ""}`, { class: "act" })}
    ${query.size > 0 && link("Run a change", `#/changes/new?${query}`, { class: "act" })}</span>`;
};

// What can be done with selected runs: run a change over them, rate them all.
export const improveActs = (source, runs) => {
  const ended = runs.filter((run) => !["running", "waiting", "queued"].includes(run.status));
  if (!ended.length) return null;
  const rate = (words, good) =>
    button(`Rate ${words}`, async ({ target }) => {
      target.disabled = true;
      try {
        for (const run of ended) await source.rate(run.run, { good });
        announce(`${many(ended.length, "run")} rated ${words}.`);
        target.textContent = `Rated ${words}`;
      } catch (error) {
        target.textContent = error.message;
      }
    });
  const change = `#/changes/new?${new URLSearchParams(ended.map((run) => ["run", run.run]))}`;
  return html`<span class="buttons">${link("Run a change", change, { class: "main-act" })}
    ${rate("good", true)}${rate("bad", false)}</span>`;
};
