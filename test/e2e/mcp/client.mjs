// An MCP client for the tests: takes orders as lines of JSON on standard input, and writes what came of each as
// a line of JSON on standard output. Everything that speaks the protocol is the official TypeScript SDK's: v1 with
// the protocol's sessions, v2 with its version that has none.
//
// MCP_TEST says which SDK and which server:
//   {"sdk": "v1", "stdio": {"command": "...", "args": [...], "env": {...}}}
//   {"sdk": "v2", "http": {"url": "...", "token": "...", "session": "..."}}
import { createInterface } from "node:readline";

const setup = JSON.parse(process.env.MCP_TEST);
const sdks = {
  v1: async () => ({
    ...(await import("@modelcontextprotocol/sdk/client/index.js")),
    ...(await import("@modelcontextprotocol/sdk/client/stdio.js")),
    ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
    options: {},
    callTool: (client, params, options) => client.callTool(params, undefined, options),
  }),
  v2: async () => ({
    ...(await import("@modelcontextprotocol/client")),
    ...(await import("@modelcontextprotocol/client/stdio")),
    options: { versionNegotiation: { mode: { pin: "2026-07-28" } } },
    callTool: (client, params, options) => client.callTool(params, options),
  }),
};
const sdk = await sdks[setup.sdk]();

function transportOf({ stdio, http }) {
  if (stdio) {
    return new sdk.StdioClientTransport({ ...stdio, stderr: "inherit" });
  }
  const headers = http.token ? { Authorization: `Bearer ${http.token}` } : {};
  return new sdk.StreamableHTTPClientTransport(new URL(http.url), { requestInit: { headers }, sessionId: http.session || undefined });
}

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const client = new sdk.Client({ name: "toolcall-tests", version: "1" }, sdk.options);
const transport = transportOf(setup);
const running = new Map();

const orders = {
  connect: async () => {
    await client.connect(transport);
    return { server: client.getServerVersion(), session: transport.sessionId ?? "" };
  },
  list: () => client.listTools(),
  call: ({ id, tool, arguments: args, progress }) => {
    const abort = new AbortController();
    running.set(id, abort);
    const options = { signal: abort.signal, timeout: 120_000 };
    if (progress) {
      options.onprogress = (p) => say({ id, progress: p });
    }
    return sdk.callTool(client, { name: tool, arguments: args, _meta: { "toolcall.dev/result": true } }, options);
  },
  cancel: ({ of }) => {
    running.get(of).abort("the test wants it");
    return {};
  },
  close: async () => {
    await client.close();
    return {};
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  Promise.resolve()
    .then(() => orders[order.do](order))
    .then((result) => say({ id: order.id, result }))
    .catch((error) => say({ id: order.id, error: String(error?.message ?? error), code: error?.code ?? error?.status ?? null }));
}
process.exit(0);
