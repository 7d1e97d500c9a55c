// Draws the pictures of a comparison; the library is loaded when first needed.
let library = null;
const loaded = () => {
  library ||= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = "/page/vega.js";
    script.onload = () => done(window.drawPicture);
    script.onerror = () => failed(new Error("The pictures could not be loaded."));
    document.head.append(script);
  });
  return library;
};

export const drawAll = async (plots, specs) => {
  for (const plot of plots) plot.textContent = "The picture is being drawn.";
  const draw = await loaded();
  const all = async () => {
    for (const [i, plot] of plots.entries()) {
      plot.replaceChildren();
      try {
        await draw(plot, specs[i]);
        plot.dataset.drawn = "yes";
      } catch {
        plot.textContent = "This picture could not be drawn.";
      }
    }
  };
  let soon;
  const again = () => { clearTimeout(soon); soon = setTimeout(all, 200); };
  addEventListener("resize", again);
  addEventListener("themed", again);
  await all();
  return () => { removeEventListener("resize", again); removeEventListener("themed", again); clearTimeout(soon); };
};
