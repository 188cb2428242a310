// Runs one shell command as a ToolCall, at most once, and prints the text for a model.
//
// usage: node run-tool.ts NAMESPACE NAME COMMAND

import { ToolCalls } from "./toolcalls.ts";

const [namespace, name, command] = process.argv.slice(2);
if (!namespace || !name || !command) {
  console.error("usage: node run-tool.ts NAMESPACE NAME COMMAND");
  process.exit(2);
}
const call = await ToolCalls.fromDefault(namespace).run(name, { shell: { command }, timeoutSeconds: 60 });
console.log(call.status?.output);
console.error(`${call.status?.phase}/${call.status?.reason}: ${call.status?.message}`);
process.exit(call.status?.phase === "Succeeded" ? 0 : 1);
