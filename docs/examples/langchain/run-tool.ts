// Invokes the tool as an agent does when a model has asked for it, without a model.
//
// usage: node run-tool.ts NAMESPACE CONVERSATION ID COMMAND

import { shellTool } from "./shell-tool.ts";

const [namespace, conversation, id, command] = process.argv.slice(2);
if (!namespace || !conversation || !id || !command) {
  console.error("usage: node run-tool.ts NAMESPACE CONVERSATION ID COMMAND");
  process.exit(2);
}
const shell = shellTool(namespace, conversation);
const message = await shell.invoke({ type: "tool_call", id, name: "shell", args: { command } });
console.log(message.content);
