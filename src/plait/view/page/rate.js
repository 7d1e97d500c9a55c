// The user's rating of a run: good or bad, and a comment. Made for any page: put what `rateControls` returns into it.
import { doing, submitting } from "./acts.js";
import { announce, button, shown } from "./dom.js";
import { html } from "./html.js";

const THUMB =
  "M2 7h3v7H2zM6.2 14V7.2L9 2c1.2 0 2 1 1.7 2.2L10.2 6.6h3c1 0 1.6.9 1.4 1.8l-1.1 4.4c-.2.7-.8 1.2-1.5 1.2z";

// `run` has `run` (its id) and perhaps `rating`, "good" or "bad". `onRated` gets each new rating, null for none.
export const rateControls = (source, run, onRated = () => {}) => {
  let now = run.rating ? { good: run.rating === "good", why: "", by: "" } : null;
  const rate = async (good, why) => {
    now = await source.rate(run.run, { good, why });
    announce(now ? `Rated ${now.good ? "good" : "bad"}.` : "The rating is removed.");
    draw();
    onRated(now);
  };
  const thumb = (good, words, turn) => {
    const press = () => doing(place, () => (now?.good === good ? rate(null, "") : rate(good, now?.why || "")));
    const picture = html`<svg viewBox="0 0 16 16" aria-hidden="true"><path d=${THUMB} transform=${turn}></path></svg>`;
    return button(picture, press, { class: `rate ${words.toLowerCase()}`, "aria-label": words, title: words });
  };
  const thumbs = [thumb(true, "Good"), thumb(false, "Bad", "rotate(180 8 8)")];
  const words = html`<span class="rated"></span>`;
  const text = html`<textarea rows="2" aria-label="Comment on the run" placeholder="What is good or bad?"></textarea>`;
  const save = submitting(async () => {
    await rate(now.good, text.value.trim());
    comment.open = false;
    summary.focus();
  });
  const summary = html`<summary class="act"></summary>`;
  const comment = html`<details class="comment">${summary}<form onsubmit=${save}>${text}
    <div class="buttons"><button type="submit">Save</button></div></form></details>`;
  const place = html`<div class="rating" role="group" aria-label="Rate this run">${thumbs}${comment}${words}</div>`;
  const draw = () => {
    thumbs.forEach((each, i) => each.setAttribute("aria-pressed", String(now?.good === (i === 0))));
    comment.hidden = !now;
    summary.textContent = now?.why ? "Edit the comment" : "Comment";
    if (!comment.open) text.value = now?.why || "";
    words.replaceChildren(html`${now?.why && html`<bdi>${shown(now.why)}</bdi>`}
      ${now?.by && html`<span class="quiet"> rated by <bdi>${shown(now.by)}</bdi></span>`}`);
  };
  draw();
  if (now)
    source.rating(run.run).then((found) => {
      now = found;
      draw();
    }, () => {});
  return place;
};
