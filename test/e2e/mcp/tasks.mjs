// Calls one tool as a task: the official TypeScript client connects, and the extension's own package asks for the task until it ends. It
// writes the task's id and the result as lines of JSON. A server that can't be reached is asked again: it may be about to be replaced.
//
// MCP_TEST: {"url": "...", "token": "...", "tool": "...", "arguments": {...}}
import { setTimeout as delay } from "node:timers/promises";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";

const setup = JSON.parse(process.env.MCP_TEST);
const protocolVersion = "2026-07-28";
const clientInfo = { name: "toolcall-tests", version: "1" };
const headers = { Authorization: `Bearer ${setup.token}` };

async function post(request) {
  const name = request.params.name ?? request.params.taskId;
  const response = await fetch(setup.url, {
    method: "POST",
    headers: {
      ...headers, "Content-Type": "application/json", Accept: "application/json, text/event-stream",
      "Mcp-Protocol-Version": protocolVersion, "Mcp-Method": request.method, "Mcp-Name": name,
    },
    body: JSON.stringify(request),
  });
  const body = await response.text();
  const lines = body.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice("data: ".length));
  return JSON.parse(lines.find((line) => line.includes('"id"')) ?? body);
}

let id = 0;
async function rawDispatch(request) {
  const numbered = { jsonrpc: "2.0", id: ++id, ...request };
  for (let tries = 0; ; tries++) {
    try {
      const answer = await post(numbered);
      if (answer.result?.resultType === "task") {
        console.log(JSON.stringify({ task: answer.result.taskId }));
      }
      return answer;
    } catch (error) {
      if (!request.method.startsWith("tasks/") || tries === 60) {
        throw error;
      }
      await delay(500);
    }
  }
}

const client = new Client(clientInfo, { versionNegotiation: { mode: { pin: protocolVersion } } });
await client.connect(new StreamableHTTPClientTransport(new URL(setup.url), { requestInit: { headers } }));
const session = createTaskSessionFromClient(client, {
  endpointId: setup.url, rawDispatch, v2RequestFraming: { protocolVersion, clientInfo, clientCapabilities: {} },
});
const execution = await session.callTool(setup.tool, setup.arguments);
const { outcome } = await execution.settle();
console.log(JSON.stringify({ result: resultFromTaskOutcome(outcome) }));
await session.close();
process.exit(0);
