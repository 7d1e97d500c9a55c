// window.drawPicture(plot, spec, tooltip): draws one Vega-Lite picture as wide as its place; gives the view.
// Colours in the spec are names of the page's, so that dark and light are the page's matter.
(() => {
  const themed = (value, style) => {
    if (Array.isArray(value)) return value.map((each) => themed(each, style));
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, name === "data" ? each : themed(each, style)]));
    const found = typeof value === "string" && /^var\((--[a-z-]+)\)$/.exec(value);
    return found ? style.getPropertyValue(found[1]).trim() : value;
  };
  const config = () => ({
    background: null, font: getComputedStyle(document.body).fontFamily, view: { stroke: null },
    axis: { labelColor: "var(--quiet)", titleColor: "var(--quiet)", gridColor: "var(--line)", domainColor: "var(--mark-quiet)", tickColor: "var(--mark-quiet)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", titlePadding: 8 },
    header: { labelColor: "var(--ink)", labelFontSize: 12 }, text: { color: "var(--ink)" },
  });
  const nothing = () => Promise.reject(new Error("Pictures load nothing."));

  window.drawPicture = (plot, given, tooltip = false) => {
    const spec = themed({ ...structuredClone(given), config: config() }, getComputedStyle(document.documentElement));
    const width = Math.max(160, plot.clientWidth);
    if (spec.facet) {
      spec.spec.width = width - 52;
      spec.config.header.labelLimit = width - 60;
    } else {
      spec.width = width;
      spec.autosize = { type: "fit-x", contains: "padding" };
      // In a narrow picture there is no room for names: numbers do.
      if (width < 400) spec.layer = spec.layer.filter((each) => !each.mark.align);
    }
    const options = { mode: "vega-lite", actions: false, ast: true, renderer: "svg", defaultStyle: false, hover: false, tooltip, loader: { load: nothing, sanitize: nothing } };
    return window.vegaEmbed(plot, spec, options);
  };
})();
