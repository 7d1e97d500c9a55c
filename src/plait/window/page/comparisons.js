// Comparisons on record: the list, and one with its table, its pictures and a link from each cell to its run.
import { drawAll } from "./pictures.js";
import { duration, line, link, make, many, number, shown, when } from "./dom.js";

const share = (value) => (value === null || value === undefined ? "" : `${(value * 100).toFixed(1).replace(/\.0$/, "")} %`);
const table = (label, heads, rows) => make("div.box", { tabindex: "0", role: "region", "aria-label": label }, make("table.numbers", {}, make("thead", {}, make("tr", {}, heads.map((each) => make("th", { scope: "col" }, each)))), make("tbody", {}, rows)));

export const comparisonsPage = async (place, source) => {
  const found = await source.comparisons();
  const row = (each) => make("li.run", {}, make("div.run-body", {}, make("h3", {}, link(each.name, `#/comparisons/${encodeURIComponent(each.name)}`)), line("facts-line", make("bdi", {}, shown(each.suite)), `${number(each.finished)} of ${many(each.cells, "run")}`, make("bdi", {}, shown(each.loops.join(", "))), when(each.started))));
  place.replaceChildren(make("header.list-head", {}, make("h1", { tabindex: "-1" }, "Comparisons")), found.length ? make("ol.runs", {}, found.map(row)) : make("p.quiet", {}, "There is none yet. `plait compare` makes one."));
  document.title = "Comparisons · Plait";
};

export const comparisonPage = async (place, source, name) => {
  const found = await source.comparison(name);
  const rows = found.rows.map((each) => {
    const r = each.row;
    const cells = r.n ? [share(r.success), `${Math.round(r.interval[0] * 100)} to ${Math.round(r.interval[1] * 100)}`, number(r.n), r.steps?.toFixed(1), r.calls?.toFixed(1), number(Math.round(r.input_tokens)), number(Math.round(r.output_tokens)), duration(r.seconds), r.cost_usd === null ? "?" : Number(r.cost_usd.toPrecision(3))] : ["no run is finished", ...Array(8).fill("")];
    return make("tr", {}, make("td", {}, each.number), make("th", { scope: "row" }, make("bdi", {}, shown(each.key))), cells.map((cell) => make("td", {}, cell === 0 ? "0" : cell)));
  });
  const grid = found.lines.map((each) => make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, shown(each.id)), " ", make("span.quiet.question", {}, shown(each.question.slice(0, 120)))),
    each.cells.map((cell, c) => make("td", {}, make("span.outcomes", {}, cell.map((one) => {
      const [sign, words] = found.outcomes[one.outcome];
      const label = `${found.rows[c].name}, ${each.id}: ${words}`;
      return one.run ? make(`a.cell.${one.outcome}`, { href: `#/runs/${encodeURIComponent(one.run)}`, "aria-label": label, title: `${words}${one.answer ? `: ${one.answer}` : ""}` }, sign) : make(`span.cell.${one.outcome}`, { role: "img", "aria-label": label }, sign);
    }))))));
  const pictures = found.pictures.map((each) => make("figure", {}, make("h3", {}, each.title), each.spec ? make("div.plot", { role: "img", "aria-label": `${each.title}. ${each.caption}` }) : null, make("figcaption", {}, each.caption)));
  const heads = ["#", "Loop and models", "Success", "95 %", "Runs", "Steps", "Calls", "Tokens in", "Out", "Time (median)", "USD a run"];
  place.replaceChildren(
    make("header.run-head", {}, make("p.crumbs", {}, link("Comparisons", "#/comparisons"), " / ", make("bdi", {}, shown(found.name))), make("h1", { tabindex: "-1" }, "Comparison of ", make("bdi", {}, shown(found.suite))),
      line("facts-line", many(found.tasks, "task"), `${number(found.finished)} of ${many(found.cells, "run")}`, found.repeat > 1 ? `${found.repeat} repeats` : ""), found.unfinished ? make("p.why", {}, shown(found.unfinished)) : null),
    make("section", {}, make("h2", {}, "The table"), table("The table", heads, rows)),
    make("section", {}, make("h2", {}, "Pictures"), found.drawing ? make("p.quiet", {}, "Numbers in the pictures are those of the table's rows.") : make("p.quiet", {}, "Pictures need plait[report], which is not installed where the server runs."), make("div.pictures", {}, pictures)),
    make("section", {}, make("h2", {}, "Outcome by task and loop"), make("p.quiet", {}, "Each sign opens its run. ", found.legend.map(([kind, sign, words]) => [make(`span.cell.${kind}`, { "aria-hidden": "true" }, sign), ` ${words}  `])), table("Outcome by task and loop", ["Task", ...found.rows.map((each) => `${each.number} ${each.name}`)], grid)));
  document.title = `${found.suite} · Plait`;
  const specs = found.pictures.filter((each) => each.spec).map((each) => each.spec);
  const leave = found.drawing ? await drawAll([...place.querySelectorAll(".plot")], specs) : null;
  return { leave: () => leave?.() };
};
