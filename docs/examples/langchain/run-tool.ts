// Invokes the tool as an agent does for a model's tool call, without a model.
//
// usage: node run-tool.ts NAMESPACE CONVERSATION ID COMMAND

import { bashTool } from "./bash-tool.ts";

const [namespace, conversation, id, command] = process.argv.slice(2);
if (!namespace || !conversation || !id || !command) {
  console.error("usage: node run-tool.ts NAMESPACE CONVERSATION ID COMMAND");
  process.exit(2);
}
const bash = bashTool(namespace, conversation);
const message = await bash.invoke({ type: "tool_call", id, name: "bash", args: { command } });
console.log(message.content);
