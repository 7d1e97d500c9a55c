// The control of the bar on top, for the page of a comparison, which is a page of its own.
import { theme } from "./theme.js";

document.getElementById("tools").append(theme().control);
