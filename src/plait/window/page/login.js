// Trades the token for a cookie that no script can read.
const form = document.getElementById("login"), wrong = document.getElementById("wrong"), token = document.getElementById("token");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  wrong.hidden = true;
  const answer = await fetch("/login", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ token: token.value.trim() }) }).catch(() => null);
  if (answer?.ok) location.reload();
  else {
    const told = await answer?.json().catch(() => null);
    wrong.textContent = !answer ? "The server can't be reached." : answer.status === 401 ? "That token does not open the window." : told?.error?.message || `The server said ${answer.status}.`;
    wrong.hidden = false;
    token.select();
  }
});
