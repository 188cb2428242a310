// The tools against the real cluster, invoked as LangChain invokes them for a model.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import type { StructuredToolInterface } from "@langchain/core/tools";
import { keyOf, SessionEnded, Toolcall, type Session } from "@toolcall/client";
import { hasCluster, TestNamespace } from "../../../test/cluster/cluster.js";
import { bashTool, codeTool, fileTools, sessionTools } from "../src/index.js";

it("offers a model the same tools as the Python library, and some more", () => {
  const nowhere = { commands: undefined, files: undefined } as unknown as Session;
  const offered = sessionTools(nowhere).map((t) => [t.name, Object.keys((t.schema as { properties: object }).properties).join(" ")]);
  assert.deepEqual(offered, [
    ["bash", "command timeout"],
    ["run_code", "code language timeout"],
    ["read_file", "path offset limit"],
    ["write_file", "path content"],
    ["edit_file", "path old new replace_all"],
    ["list_files", "path recursive"],
    ["find_files", "pattern path"],
    ["search_files", "pattern path glob literal"],
  ]);
});

it("says why a file has no lines", async () => {
  const read = async (lines: object): Promise<unknown> => {
    const files = { readLines: async () => lines };
    return fileTools({ files } as unknown as Session)[0]?.invoke({ path: "a" });
  };
  assert.equal(await read({ text: "", note: "a is a binary file", binary: true }), "a is a binary file");
  assert.equal(await read({ text: "one\n", note: "line 2 is too long", binary: false }), "one\n\nline 2 is too long");
  assert.equal(await read({ text: "one\n", binary: false }), "one\n");
});

it("makes another key of an id for each tool", async () => {
  const keys: (string | undefined)[] = [];
  const run = async (_: unknown, limits: { key?: string }): Promise<{ text: string }> => {
    keys.push(limits.key);
    return { text: "" };
  };
  const target = { toolcall: { run } as unknown as Toolcall };
  for (const tool of [bashTool(target, { conversation: "one" }), codeTool(target, { conversation: "one" })]) {
    const args = { command: "true", code: "1", language: "python" };
    await tool.invoke({ type: "tool_call", id: "call_1", name: tool.name, args });
    await tool.invoke({ type: "tool_call", id: "call_1", name: tool.name, args });
  }
  assert.deepEqual(keys, [keyOf("one", "call_1"), keyOf("one", "call_1"), keyOf("one", "run_code", "call_1"), keyOf("one", "run_code", "call_1")]);
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
    assert.match(await call("bash", { command: "echo x >> count; wc -l < count" }, "call_1"), /^1\b/);
    assert.match(await call("bash", { command: "echo x >> count; wc -l < count" }, "call_1"), /^1\b/);
    assert.match(await call("bash", { command: "echo x >> count; wc -l < count" }, "call_2"), /^2\b/);
  });

  it("tells the model about denials, failures and time limits", async () => {
    assert.match(await call("bash", { command: "curl example.org" }), /curl/);
    assert.match(await call("bash", { command: "echo problem >&2; exit 3" }), /problem[^]*3/);
    assert.match(await call("bash", { command: "echo started; sleep 60", timeout: 100 }, "slow"), /started[^]*5/);
  });

  it("runs code", async () => {
    assert.match(await call("run_code", { language: "python", code: "print(6 * 7)" }), /^42\b/);
  });

  it("works on files", async () => {
    assert.equal(await call("write_file", { path: "src/a.txt", content: "pear\nfig\n" }), "created src/a.txt, 9 bytes");
    assert.equal(await call("edit_file", { path: "src/a.txt", old: "fig", new: "plum" }), "replaced 1 times in src/a.txt");
    assert.equal(await call("read_file", { path: "src/a.txt", offset: 2, limit: 1 }), "plum\n");
    assert.equal(await call("list_files", { path: "src" }), "a.txt\t10");
    assert.equal(await call("find_files", { pattern: "**/*.txt" }), "src/a.txt");
    assert.equal(await call("search_files", { pattern: "p.u" }), "src/a.txt:2:plum");
    assert.equal(await call("search_files", { pattern: "p.u", literal: true }), "nothing found");
    assert.match(await call("read_file", { path: "nowhere" }), /nowhere/);
  });

  it("cancels the command when the agent is aborted", async () => {
    const bash = bashTool(session);
    await assert.rejects(bash.invoke({ command: "echo begun > begun; sleep 60; echo ended > ended" }, { signal: AbortSignal.timeout(1_500) }));
    // The session takes one call at a time: this one runs only because the other was stopped.
    const next = await session.commands.run("ls begun ended", { timeout: 20 });
    assert.equal(next.stdout, "begun\n");
  });

  it("runs in pods of their own without a session", async () => {
    const bash = bashTool({ toolcall: client, environment: "tools" });
    assert.match(await bash.invoke({ command: "ls | wc -l" }), /^0\b/);
  });

  it("refuses a call without an id where it should run once", async () => {
    await assert.rejects(async () => tools.bash?.invoke({ command: "true" }), /id/);
  });

  it("throws what a model can do nothing about", async () => {
    const ended = await client.session("tools");
    await ended.end();
    const [read] = fileTools(ended);
    await assert.rejects(async () => read?.invoke({ path: "a" }), SessionEnded);
  });
});
