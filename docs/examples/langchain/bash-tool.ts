// A LangChain tool that runs a model's shell commands as ToolCalls.

import { createHash } from "node:crypto";
import { tool } from "@langchain/core/tools";
import { z } from "zod";
import { ToolCalls, type ToolCallSpec } from "../typescript/toolcalls.ts";

// nameOf derives an object's name from the id that the model gave its tool call: after a crash of the agent, the same
// tool call has the same name and doesn't run again. The name includes the conversation, because models reuse ids.
function nameOf(conversation: string, id: string): string {
  return "bash-" + createHash("sha256").update(`${conversation}\n${id}`).digest("hex").slice(0, 24);
}

export function bashTool(namespace: string, conversation: string) {
  const calls = ToolCalls.fromDefault(namespace);
  return tool(
    async ({ command, timeout }, config) => {
      const id: string | undefined = config?.toolCall?.id;
      if (!id) {
        throw new Error("invoke this tool with a model's tool call: its id makes sure that it runs at most once");
      }
      const spec: ToolCallSpec = { shell: { command }, ...(timeout ? { timeoutSeconds: timeout } : {}) };
      const call = await calls.run(nameOf(conversation, id), spec);
      // The model also gets denials and failures: their text says what would work.
      return call.status?.output ?? call.status?.message ?? "";
    },
    {
      name: "bash",
      description: "Runs a bash command in a fresh sandbox and returns what it printed.",
      schema: z.object({
        command: z.string().describe("the command line"),
        timeout: z.number().int().positive().optional().describe("seconds after which it is stopped"),
      }),
    },
  );
}
