// For the OpenAI Agents SDK: an agent's commands and files are those of a toolcall.dev session.

export { ToolcallEditor, ToolcallShell, type ToolcallShellOptions } from "./tools.js";
export { ToolcallSandbox } from "./sandbox.js";
