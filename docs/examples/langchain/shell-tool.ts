// A LangChain tool that runs shell commands of a model as ToolCalls.

import { createHash } from "node:crypto";
import { tool } from "@langchain/core/tools";
import { z } from "zod";
import { ToolCalls, type ToolCallSpec } from "../typescript/toolcalls.ts";

// nameOf derives the name of the object from the id of the model's tool call. If the agent repeats a tool call after a
// crash, the name is the same, and the call doesn't run twice. The name includes the conversation, because models can
// use the same id in another one.
function nameOf(conversation: string, id: string): string {
  return "shell-" + createHash("sha256").update(`${conversation}\n${id}`).digest("hex").slice(0, 24);
}

export function shellTool(namespace: string, conversation: string) {
  const calls = ToolCalls.fromDefault(namespace);
  return tool(
    async ({ command, timeoutSeconds }, config) => {
      const id: string | undefined = config?.toolCall?.id;
      if (!id) {
        throw new Error("invoke this tool with a tool call of a model: its id ensures that it runs at most once");
      }
      const spec: ToolCallSpec = { shell: { command }, ...(timeoutSeconds ? { timeoutSeconds } : {}) };
      const call = await calls.run(nameOf(conversation, id), spec);
      // Denials and failures are for the model too: their text says what is allowed.
      return call.status?.output ?? call.status?.message ?? "";
    },
    {
      name: "shell",
      description: "Runs a bash command in a new sandbox and returns its output.",
      schema: z.object({
        command: z.string().describe("the command line"),
        timeoutSeconds: z.number().int().positive().optional().describe("time limit"),
      }),
    },
  );
}
