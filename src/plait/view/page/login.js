// Trades the token for a cookie that no script can read, and for a part that this page keeps. A request needs both.
import { keep } from "./theme.js";

const [form, wrong, token] = ["login", "wrong", "token"].map((id) => document.getElementById(id));
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  wrong.hidden = true;
  const answer = await fetch("login", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token: token.value.trim() }),
  }).catch(() => null);
  if (answer?.ok) {
    keep("plait-page", (await answer.json()).page);
    // An address that differs by nothing, or its hash alone, would not be loaded again.
    if (location.search) location.replace(location.pathname + location.hash);
    else location.reload();
  } else {
    const told = await answer?.json().catch(() => null);
    const refused = answer?.status === 401 ? "That token does not open this page." : told?.error?.message;
    wrong.textContent = answer ? refused || `The server said ${answer.status}.` : "The server can't be reached.";
    wrong.hidden = false;
    token.select();
  }
});
