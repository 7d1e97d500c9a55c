// Pages' talks with an agent through the official client of AG-UI, whose package's folder is the argument. A talk is a line
// of JSON on stdin: {url, headers, threadId, messages, state, steps}. One line of JSON comes out: {told, warned}, with what
// the page has after each step, and the client's warnings.
// A step is {say, url, thread, runId, resume, context, forwardedProps, tools, leaveAfter}: a `thread` begins with its `url`. `resume` is the
// payload of the answer to the open interrupt, or a whole list; after an event of the type `leaveAfter` the client closes the connection.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { HttpAgent, buildResumeArray } = createRequire(process.argv[2] + "/")("@ag-ui/client");
let warned = [];
console.error = () => {};
console.warn = (...words) => warned.push(words.join(" "));

async function* talk({ url, headers, threadId, messages, state, steps }) {
  let agent = new HttpAgent({ url, headers, threadId, initialMessages: messages, initialState: state });
  for (const [i, { say, thread, runId, resume, leaveAfter, ...rest }] of steps.entries()) {
    if (thread) agent = new HttpAgent({ url: rest.url, headers, threadId: thread });
    if (say !== undefined) agent.addMessage({ id: `said-${i}-${threadId}`, role: "user", content: say });
    const answer = () => Array.isArray(resume) ? resume : buildResumeArray(
      agent.pendingInterrupts,
      Object.fromEntries(agent.pendingInterrupts.map((each) => [
        each.id, resume === "cancelled" ? { status: "cancelled" } : { status: "resolved", payload: resume },
      ])),
    );
    const events = [], told = { events };
    try {
      const parameters = { runId, ...rest, ...(resume === undefined ? {} : { resume: answer() }) };
      told.result = (await agent.runAgent(parameters, {
        onEvent: ({ event }) => {
          events.push(event);
          if (event.type === leaveAfter) agent.abortRun();
        },
      })).result;
    } catch (error) {
      told.error = String(error.message);
    }
    const { messages, state, pendingInterrupts } = agent;
    yield JSON.stringify({ ...told, messages, state, pendingInterrupts });
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const told = [];
  for await (const step of talk(JSON.parse(line))) told.push(step);
  console.log(`{"told": [${told.join(",")}], "warned": ${JSON.stringify(warned)}}`);
  warned = [];
}
process.exit(0);
