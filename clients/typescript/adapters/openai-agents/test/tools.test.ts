// The shell and the editor under the SDK's own runner, with a model that follows a script, against the real cluster.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Agent, applyPatchTool, run, setTracingDisabled, shellTool, type AgentOutputItem, type ApplyPatchOperation, type ShellAction } from "@openai/agents";
import { filesystem, Manifest, SandboxAgent, shell as shellTools } from "@openai/agents/sandbox";
import { assistantMessage, functionCall, ScriptedModel } from "@openai/agents/testing";
import { InvalidArgument, SessionEnded, Toolcall, type Session } from "@toolcall/client";
import { hasCluster, TestNamespace } from "../../../test/cluster/cluster.js";
import { ToolcallEditor, ToolcallSandbox, ToolcallShell } from "../src/index.js";

setTracingDisabled(true);

const shell = (callId: string, action: ShellAction): AgentOutputItem[] => [{ type: "shell_call", callId, status: "completed", action }];
const patch = (callId: string, operation: ApplyPatchOperation): AgentOutputItem[] => [{ type: "apply_patch_call", callId, status: "completed", operation }];

it("says where a moved file is that can't be written", async () => {
  const files = {
    stat: () => Promise.resolve({ size: 2 }),
    read: () => Promise.resolve(Buffer.from("x\n")),
    mkdir: () => Promise.resolve(),
    move: () => Promise.resolve(),
    write: () => Promise.reject(new InvalidArgument("no space")),
  };
  const editor = new ToolcallEditor({ files } as unknown as Session);
  const answer = await editor.updateFile({ type: "update_file", path: "a.txt", diff: "@@\n-x\n+y", moveTo: "b.txt" });
  assert.deepEqual(answer, { status: "failed", output: "a.txt was moved to b.txt, but not changed: no space" });
});

describe("OpenAI Agents SDK", { skip: !hasCluster && "set TOOLCALL_SCENARIOS=1 and KUBECONFIG", timeout: 180_000 }, () => {
  let namespace: TestNamespace;
  let client: Toolcall;
  let session: Session;
  let editor: ToolcallEditor;

  before(async () => {
    namespace = await TestNamespace.create();
    client = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agent });
    session = await client.session("tools");
    editor = new ToolcallEditor(session);
  });

  after(async () => {
    await session?.end();
    client?.close();
    await namespace?.remove();
  });

  it("gives an agent a shell and an editor", async () => {
    const model = new ScriptedModel([
      patch("p1", { type: "create_file", path: "fruit.txt", diff: "+pear\n+fig" }),
      patch("p2", { type: "update_file", path: "fruit.txt", diff: "@@\n pear\n-fig\n+plum" }),
      shell("s1", { commands: ["sort -r fruit.txt; echo problem >&2; exit 3", "echo second"], maxOutputLength: 4096 }),
      shell("s2", { commands: ["curl example.org"] }),
      patch("p3", { type: "delete_file", path: "fruit.txt" }),
      patch("p4", { type: "delete_file", path: "fruit.txt" }),
      [assistantMessage("done")],
    ]);
    const tools = [shellTool({ shell: new ToolcallShell(session) }), applyPatchTool({ editor })];
    const result = await run(new Agent({ name: "sorter", model, tools }), "sort the fruit");
    model.assertComplete();
    assert.equal(result.finalOutput, "done");
    const outputs = result.newItems.filter((item) => item.type === "tool_call_output_item").map(({ rawItem }) => rawItem);
    const [created, changed, sorted, denied, deleted, gone] = outputs as unknown as [Patched, Patched, Ran, Ran, Patched, Patched];
    assert.deepEqual([created.status, changed.status, deleted.status, gone.status], ["completed", "completed", "completed", "failed"]);
    assert.match(gone.output, /fruit\.txt/);
    assert.deepEqual(sorted.output, [
      { stdout: "plum\npear\n", stderr: "problem\n", outcome: { type: "exit", exitCode: 3 } },
      { stdout: "second\n", stderr: "", outcome: { type: "exit", exitCode: 0 } },
    ]);
    assert.equal(sorted.maxOutputLength, 4096);
    assert.match(denied.output[0]?.stderr ?? "", /curl/);
    assert.deepEqual(denied.output[0]?.outcome, { type: "exit", exitCode: null });
  });

  it("is the sandbox of a SandboxAgent", async () => {
    const png = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
    await session.files.write("dot.png", png);
    await session.files.mkdir("sub");
    const model = new ScriptedModel([
      [functionCall("exec_command", { cmd: "pwd; echo problem >&2; exit 3", workdir: "sub" }, { callId: "e1" })],
      [functionCall("exec_command", { cmd: "curl example.org" }, { callId: "e2" })],
      [functionCall("exec_command", { cmd: "top", tty: true }, { callId: "e3" })],
      patch("p1", { type: "create_file", path: "made.txt", diff: "+made" }),
      [functionCall("view_image", { path: "dot.png" }, { callId: "v1" })],
      [assistantMessage("done")],
    ]);
    const agent = new SandboxAgent({ name: "sorter", model, capabilities: [shellTools(), filesystem()] });
    const result = await run(agent, "look around", { sandbox: { session: await ToolcallSandbox.of(session, { timeout: 20 }) } });
    model.assertComplete();
    assert.equal(result.finalOutput, "done");
    const said = result.newItems.filter((item) => item.type === "tool_call_output_item").map(({ rawItem }) => JSON.stringify(rawItem));
    const [ran, denied, terminal, , image] = said;
    assert.match(ran ?? "", /\/workspace\/sub\\nproblem\\n[^]*exited with code 3/);
    assert.match(denied ?? "", /curl.{1,4} is not listed/);
    assert.match(terminal ?? "", /no terminal/);
    assert.match(image ?? "", /iVBORw0KGgo/);
    assert.equal(await session.files.read("made.txt"), "made");
  });

  it("refuses a user and a manifest with entries in a sandbox", async () => {
    const sandbox = await ToolcallSandbox.of(session);
    await assert.rejects(sandbox.execCommand({ cmd: "true", runAs: "root" }), InvalidArgument);
    await assert.rejects(sandbox.viewImage({ path: "fruit.txt" }), InvalidArgument);
    const manifest = new Manifest({ root: sandbox.state.manifest.root, entries: { "a.txt": { type: "file", content: "a" } } });
    const agent = new SandboxAgent({ name: "sorter", model: new ScriptedModel([]), defaultManifest: manifest, capabilities: [shellTools()] });
    await assert.rejects(run(agent, "look around", { sandbox: { session: sandbox } }), /manifest/);
  });

  it("stops an action at the time limit of a command", async () => {
    const { output } = await new ToolcallShell(session).run({ commands: ["echo before; sleep 60", "echo after"], timeoutMs: 900 });
    assert.deepEqual(output.map(({ stdout, outcome }) => [stdout, outcome.type]), [["before\n", "timeout"]]);
    const own = await new ToolcallShell(session, { timeout: 1 }).run({ commands: ["sleep 60"] });
    assert.equal(own.output[0]?.outcome.type, "timeout");
  });

  it("says what ended a command without an exit code", async () => {
    const { output } = await new ToolcallShell(session).run({ commands: ["printf part >&2; kill -9 $$"] });
    assert.deepEqual(output[0]?.outcome, { type: "exit", exitCode: null });
    assert.match(output[0]?.stderr ?? "", /^part\n.*SIGKILL/);
  });

  it("replaces no file that it wasn't asked to", async () => {
    await session.files.write("there.txt", "mine\n");
    const create = await editor.createFile({ type: "create_file", path: "there.txt", diff: "+other" });
    assert.equal(create.status, "failed");
    await session.files.write("there.txt", "mine\n", { mode: "0755" });
    const moved = await editor.updateFile({ type: "update_file", path: "there.txt", diff: "@@\n-mine\n+ours", moveTo: "new/moved.txt" });
    assert.equal(moved.status, "completed", moved.output);
    assert.equal((await session.files.stat("new/moved.txt")).mode, "0755");
    const back = await editor.updateFile({ type: "update_file", path: "new/moved.txt", diff: "@@\n-ours\n+theirs", moveTo: "back.txt" });
    assert.equal(back.status, "completed", back.output);
    await session.files.write("again.txt", "x\n");
    const onto = await editor.updateFile({ type: "update_file", path: "again.txt", diff: "@@\n-x\n+y", moveTo: "back.txt" });
    assert.equal(onto.status, "failed");
    assert.deepEqual([await session.files.exists("there.txt"), await session.files.read("back.txt")], [false, "theirs\n"]);
    assert.equal(await session.files.read("again.txt"), "x\n");
  });

  it("says why a patch doesn't fit", async () => {
    await session.files.write("a.txt", "one\n");
    await session.files.write("b.bin", Uint8Array.from([255, 0, 10]));
    const update = (path: string, diff: string): ReturnType<ToolcallEditor["updateFile"]> => editor.updateFile({ type: "update_file", path, diff });
    for (const [path, diff, message] of [
      ["a.txt", "@@\n-two\n+2", /doesn't fit a\.txt/],
      ["b.bin", "@@\n-a\n+b", /isn't UTF-8/],
      ["none.txt", "@@\n-a\n+b", /none\.txt/],
      ["secret.pem", "@@\n-a\n+b", /pem/],
    ] as const) {
      const answer = await update(path, diff);
      assert.equal(answer.status, "failed");
      assert.match(answer.output ?? "", message);
    }
    assert.equal(await session.files.read("a.txt"), "one\n");
  });

  it("throws when the session has ended", async () => {
    const own = await client.session("tools");
    await own.end();
    await assert.rejects(new ToolcallShell(own).run({ commands: ["true"] }), SessionEnded);
    await assert.rejects(new ToolcallEditor(own).deleteFile({ type: "delete_file", path: "a" }), SessionEnded);
  });
});

interface Patched {
  status: string;
  output: string;
}

interface Ran {
  output: { stdout: string; stderr: string; outcome: object }[];
  maxOutputLength?: number;
}
