// window.drawPicture(plot, spec, tooltip): draws one Vega-Lite picture as wide as its place; gives the view.
// Colours in the spec are names of the page's, so that dark and light are the page's matter.
(() => {
  // `resolve` turns a name into a color: only the browser knows which of two is used, the light or the dark one.
  const themed = (value, resolve) => {
    if (Array.isArray(value)) return value.map((each) => themed(each, resolve));
    if (value && typeof value === "object") {
      const entries = Object.entries(value);
      return Object.fromEntries(entries.map(([name, each]) => [name, name === "data" ? each : themed(each, resolve)]));
    }
    return typeof value === "string" && /^var\(--[a-z-]+\)$/.test(value) ? resolve(value) : value;
  };
  const resolverIn = (place) => {
    const probe = place.appendChild(document.createElement("span"));
    return (name) => {
      probe.style.color = name;
      return getComputedStyle(probe).color;
    };
  };
  const config = () => ({
    background: null,
    font: getComputedStyle(document.body).fontFamily,
    view: { stroke: null },
    axis: {
      labelColor: "var(--quiet)",
      titleColor: "var(--quiet)",
      gridColor: "var(--line)",
      domainColor: "var(--mark-quiet)",
      tickColor: "var(--mark-quiet)",
      labelFontSize: 12,
      titleFontSize: 12,
      titleFontWeight: "normal",
      titlePadding: 8,
    },
    header: { labelColor: "var(--ink)", labelFontSize: 12 },
    text: { color: "var(--ink)" },
  });
  const nothing = () => Promise.reject(new Error("Pictures load nothing."));

  window.drawPicture = (plot, given, tooltip = false) => {
    const spec = themed({ ...structuredClone(given), config: config() }, resolverIn(plot));
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
    const options = {
      mode: "vega-lite",
      actions: false,
      ast: true,
      renderer: "svg",
      defaultStyle: false,
      hover: false,
      tooltip,
      loader: { load: nothing, sanitize: nothing },
    };
    return window.vegaEmbed(plot, spec, options);
  };
})();
