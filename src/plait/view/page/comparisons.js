// Comparisons on record: each is a page of its own, that of `plait compare --html`.
import { flat, line, link, many, number, shown, when } from "./dom.js";
import { html } from "./html.js";

export const comparisonsPage = async (place, source) => {
  const found = await source.comparisons();
  const row = (each) => {
    const suite = html`<bdi title=${flat(each.suite)}>${shown(flat(each.suite.split("/").at(-1), 60))}</bdi>`;
    const runs = `${number(each.finished)} of ${many(each.cells, "run")}`;
    const loops = html`<bdi>${shown(each.loops.join(", "))}</bdi>`;
    return html`<li class="run"><h2><a href=${source.comparison(each.name)}>${each.name}</a></h2>
      ${line("facts-line", suite, runs, loops, when(each.started))}</li>`;
  };
  place.replaceChildren(html`<header class="list-head"><h1 tabindex="-1">Comparisons</h1></header>
    ${found.length ? html`<ol class="runs">${found.map(row)}</ol>`
      : html`<p class="quiet">There is none yet. Keep runs as tests in ${link("a data set", "#/datasets")}; its page says
          how to compare agents on it.</p>`}`);
  document.title = "Comparisons · Plait";
};
