// Draws the pictures of a comparison. Their colours are names of this page's; the library is loaded when first needed.
let library = null;
const vega = () => {
  library ||= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = "/page/vega.js";
    script.onload = () => done(window.vegaEmbed);
    script.onerror = () => failed(new Error("The pictures could not be loaded."));
    document.head.append(script);
  });
  return library;
};

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

const draw = async (embed, plot, given) => {
  const spec = themed({ ...structuredClone(given), config: config() }, getComputedStyle(document.documentElement));
  const width = Math.max(160, plot.clientWidth);
  if (spec.facet) {
    spec.spec.width = width - 52;
    spec.config.header.labelLimit = width - 60;
  } else {
    spec.width = width;
    spec.autosize = { type: "fit-x", contains: "padding" };
    if (width < 400) spec.layer = spec.layer.filter((each) => !each.mark.align);
  }
  const nothing = () => Promise.reject(new Error("Pictures load nothing."));
  const view = await embed(plot, spec, { mode: "vega-lite", actions: false, ast: true, renderer: "svg", defaultStyle: false, hover: false, tooltip: false, loader: { load: nothing, sanitize: nothing } });
  plot.dataset.drawn = "yes";
  return view;
};

export const drawAll = async (plots, specs) => {
  const embed = await vega();
  const all = async () => {
    for (const [i, plot] of plots.entries()) {
      plot.replaceChildren();
      try { await draw(embed, plot, specs[i]); } catch { plot.textContent = "This picture could not be drawn."; }
    }
  };
  let soon;
  const again = () => { clearTimeout(soon); soon = setTimeout(all, 200); };
  addEventListener("resize", again);
  addEventListener("themed", again);
  await all();
  return () => { removeEventListener("resize", again); removeEventListener("themed", again); clearTimeout(soon); };
};
