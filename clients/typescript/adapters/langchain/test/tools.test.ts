// The tools against the real cluster, invoked as LangChain invokes them for a model.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import type { StructuredToolInterface } from "@langchain/core/tools";
import { SessionEnded, Toolcall, type Session } from "@toolcall/client";
import { hasCluster, TestNamespace } from "../../../test/cluster/cluster.js";
import { fileTools, keyOf, sessionTools, shellTool } from "../src/index.js";

describe("keys of model's tool calls", () => {
  it("are the same for the same call, and another for any other", () => {
    assert.equal(keyOf("a", "shell", "call_1"), keyOf("a", "shell", "call_1"));
    const others = [keyOf("a", "shell", "call_1"), keyOf("a", "shell", "call_2"), keyOf("b", "shell", "call_1"), keyOf("a", "code", "call_1")];
    assert.equal(new Set(others).size, 4);
    assert.match(keyOf('x","y', "shell", "é"), /^shell-[0-9a-f]{32}$/);
  });
});

describe("LangChain tools", { skip: !hasCluster && "set TOOLCALL_SCENARIOS=1 and KUBECONFIG", timeout: 120_000 }, () => {
  let namespace: TestNamespace;
  let client: Toolcall;
  let session: Session;
  let tools: Record<string, StructuredToolInterface>;

  before(async () => {
    namespace = await TestNamespace.create();
    client = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agent });
    session = await client.session("tools");
    tools = Object.fromEntries(sessionTools(session, { conversation: "one", maxTimeout: 5 }).map((t) => [t.name, t]));
  });

  after(async () => {
    await session?.end();
    client?.close();
    await namespace?.remove();
  });

  const call = async (name: string, args: object, id = `${name}-${JSON.stringify(args)}`): Promise<string> => {
    const message: unknown = await tools[name]?.invoke({ type: "tool_call", id, name, args });
    return (message as { content: string }).content;
  };

  it("runs a model's tool call once, however often it is invoked", async () => {
    assert.match(await call("shell", { command: "echo x >> count; wc -l < count" }, "call_1"), /^1\b/);
    assert.match(await call("shell", { command: "echo x >> count; wc -l < count" }, "call_1"), /^1\b/);
    assert.match(await call("shell", { command: "echo x >> count; wc -l < count" }, "call_2"), /^2\b/);
  });

  it("tells the model about denials, failures and time limits", async () => {
    assert.match(await call("shell", { command: "curl example.org" }), /curl/);
    assert.match(await call("shell", { command: "echo problem >&2; exit 3" }), /problem[^]*3/);
    assert.match(await call("shell", { command: "echo started; sleep 60", timeoutSeconds: 100 }, "slow"), /started[^]*5/);
  });

  it("runs code", async () => {
    assert.match(await call("run_code", { language: "python", code: "print(6 * 7)" }), /^42\b/);
  });

  it("works on files", async () => {
    assert.equal(await call("write_file", { path: "src/a.txt", content: "pear\nfig\n" }), "created src/a.txt, 9 bytes");
    assert.equal(await call("edit_file", { path: "src/a.txt", oldText: "fig", newText: "plum" }), "replaced 1 times in src/a.txt");
    assert.equal(await call("read_file", { path: "src/a.txt", firstLine: 2, lines: 1 }), "plum\n");
    assert.equal(await call("list_files", { path: "src" }), "a.txt\t10");
    assert.equal(await call("find_files", { pattern: "**/*.txt" }), "src/a.txt");
    assert.equal(await call("search_files", { pattern: "p.u" }), "src/a.txt:2:plum");
    assert.equal(await call("search_files", { pattern: "p.u", literal: true }), "nothing found");
    assert.match(await call("read_file", { path: "nowhere" }), /nowhere/);
  });

  it("cancels the command when the agent is aborted", async () => {
    const shell = shellTool(session);
    await assert.rejects(shell.invoke({ command: "echo begun > begun; sleep 60; echo ended > ended" }, { signal: AbortSignal.timeout(1_500) }));
    // The session takes one call at a time: this one runs only because the other was stopped.
    const next = await session.commands.run("ls begun ended", { timeout: 20 });
    assert.equal(next.stdout, "begun\n");
  });

  it("runs in pods of their own without a session", async () => {
    const shell = shellTool({ toolcall: client, environment: "tools" });
    assert.match(await shell.invoke({ command: "ls | wc -l" }), /^0\b/);
  });

  it("refuses a call without an id where it should run once", async () => {
    await assert.rejects(async () => tools.shell?.invoke({ command: "true" }), /id/);
  });

  it("throws what a model can do nothing about", async () => {
    const ended = await client.session("tools");
    await ended.end();
    const [read] = fileTools(ended);
    await assert.rejects(async () => read?.invoke({ path: "a" }), SessionEnded);
  });
});
