// What the pages share with which people improve agents.
import { announce, button, link, make, many } from "./dom.js";

const PAGES = { review: "Review", datasets: "Data sets", changes: "Changes" };

export const improveTabs = (here) =>
  make(
    "nav.tabs",
    { "aria-label": "Improve" },
    Object.entries(PAGES).map(([page, words]) =>
      link(words, `#/${page}`, { "aria-current": page === here ? "page" : null, class: "act" }),
    ),
  );

// The page with all data sets, or all changes: each entry is its name and what else is to be said of it.
export const listPage = (place, page, about, entries) => {
  place.replaceChildren(
    make("header", {}, improveTabs(page), make("h1", { tabindex: "-1" }, PAGES[page])),
    make("p.quiet", {}, about),
    make(
      "ul.plain-list",
      {},
      entries.map(([name, ...more]) =>
        make("li", {}, link(name, `#/${page}/${encodeURIComponent(name)}`), make("span.quiet", {}, " ", more)),
      ),
    ),
    entries.length ? "" : make("p", {}, "There is none yet."),
  );
  document.title = `${PAGES[page]} · Plait`;
};

// Shows a dialog, which is gone when it is closed.
export const openDialog = (kind, title, ...inside) => {
  const heading = make("h2", { id: "dialog-title", tabindex: "-1" }, title);
  const dialog = make(`dialog.${kind}`, { "aria-labelledby": "dialog-title" }, heading, inside);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  heading.focus();
  return dialog;
};

// What can be done with all runs of the list's filters.
export const filterLinks = (wanted) => {
  const values = Object.entries(wanted).flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
  const query = new URLSearchParams(values.filter(([name, value]) => value && name !== "sort"));
  return make(
    "span.buttons",
    {},
    link("Review", `#/review${query.size ? `?${query}` : ""}`, { class: "act" }),
    query.size ? link("Run a change", `#/changes/new?${query}`, { class: "act" }) : null,
  );
};

// What can be done with selected runs: run a change over them, rate them all.
export const improveActs = (source, runs) => {
  const ended = runs.filter((run) => !["running", "waiting", "queued"].includes(run.status));
  const rate = (words, good) =>
    button(`Rate ${words}`, async (event) => {
      event.target.disabled = true;
      try {
        for (const run of ended) await source.rate(run.run, { good });
        announce(`${many(ended.length, "run")} rated ${words}.`);
        event.target.textContent = `Rated ${words}`;
      } catch (error) {
        event.target.textContent = error.message;
      }
    });
  const change = `#/changes/new?${new URLSearchParams(ended.map((run) => ["run", run.run]))}`;
  return ended.length
    ? make(
        "span.buttons",
        {},
        link("Run a change", change, { class: "main-act" }),
        rate("good", true),
        rate("bad", false),
      )
    : null;
};
