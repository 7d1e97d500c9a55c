// Comparisons on record: each is a page of its own, that of `plait compare --html`.
import { flat, line, link, make, many, number, shown, when } from "./dom.js";

export const comparisonsPage = async (place, source) => {
  const found = await source.comparisons();
  const row = (each) =>
    make(
      "li.run",
      {},
      make("h2", {}, link(each.name, source.comparison(each.name))),
      line(
        "facts-line",
        make("bdi", { title: flat(each.suite) }, shown(flat(each.suite.split("/").at(-1), 60))),
        `${number(each.finished)} of ${many(each.cells, "run")}`,
        make("bdi", {}, shown(each.loops.join(", "))),
        when(each.started),
      ),
    );
  place.replaceChildren(
    make("header.list-head", {}, make("h1", { tabindex: "-1" }, "Comparisons")),
    found.length
      ? make("ol.runs", {}, found.map(row))
      : make("p.quiet", {}, "There is none yet. `plait compare` makes one."),
  );
  document.title = "Comparisons · Plait";
};
