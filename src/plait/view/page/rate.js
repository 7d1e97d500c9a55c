// The user's rating of a run: good or bad, and a comment. Made for any page: put what `rateControls` returns into it.
import { announce, button, make, problem, shown } from "./dom.js";

const THUMB =
  "M2 7h3v7H2zM6.2 14V7.2L9 2c1.2 0 2 1 1.7 2.2L10.2 6.6h3c1 0 1.6.9 1.4 1.8l-1.1 4.4c-.2.7-.8 1.2-1.5 1.2z";
const thumb = (isDown) => {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", THUMB);
  if (isDown) path.setAttribute("transform", "rotate(180 8 8)");
  svg.append(path);
  return svg;
};

// `run` has `run` (its id) and perhaps `rating`, "good" or "bad". `onChange(rating)` hears each change: {good, why, by}, or
// null for a rating that was taken back.
export const rateControls = (source, run, onChange = () => {}) => {
  let now = run.rating ? { good: run.rating === "good", why: "", by: "" } : null;
  const area = make("textarea", { rows: 2, "aria-label": "Comment on the run", placeholder: "What is good or bad?" });
  const form = make("form.comment", { hidden: true });
  const words = make("span.rated");
  const place = make("div.rating", { role: "group", "aria-label": "Rate this run" });
  const keep = async (good, why) => {
    place.querySelector(".problem")?.remove();
    try {
      now = await source.rate(run.run, { good, why });
      announce(now ? `Rated ${now.good ? "good" : "bad"}.` : "The rating is removed.");
      draw();
      onChange(now);
      return true;
    } catch (error) {
      place.append(problem(error));
      return false;
    }
  };
  const press = (good) => (now?.good === good ? keep(null, "") : keep(good, now?.why || ""));
  const good = button(thumb(false), () => press(true), { class: "rate good", "aria-label": "Good", title: "Good" });
  const bad = button(thumb(true), () => press(false), { class: "rate bad", "aria-label": "Bad", title: "Bad" });
  const comment = button(
    "Comment",
    () => {
      form.hidden = !form.hidden;
      area.value = now?.why || "";
      if (!form.hidden) area.focus();
    },
    { class: "act", "aria-expanded": "false" },
  );
  const draw = () => {
    good.setAttribute("aria-pressed", String(now?.good === true));
    bad.setAttribute("aria-pressed", String(now?.good === false));
    comment.hidden = !now;
    comment.textContent = now?.why ? "Edit the comment" : "Comment";
    words.replaceChildren(
      ...(now?.why ? [make("bdi", {}, shown(now.why))] : []),
      ...(now?.by ? [make("span.quiet", {}, " rated by ", make("bdi", {}, shown(now.by)))] : []),
    );
    if (!now) form.hidden = true;
  };
  form.append(
    area,
    make(
      "div.buttons",
      {},
      make("button", { type: "submit" }, "Save"),
      button("Close", () => {
        form.hidden = true;
        comment.focus();
      }),
    ),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (now && (await keep(now.good, area.value.trim()))) {
      form.hidden = true;
      comment.focus();
    }
  });
  place.append(good, bad, comment, words, form);
  draw();
  if (now)
    source.rating(run.run).then(
      (found) => {
        now = found;
        draw();
      },
      () => {},
    );
  return place;
};
