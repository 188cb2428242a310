// The provider under ComputeSDK itself, against the real cluster.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { InvalidArgument, NonZeroExit, NotFound, Toolcall, type Session } from "@toolcall/client";
import type { Provider, ProviderSandbox } from "@computesdk/provider";
import { compute } from "computesdk";
import { hasCluster, TestNamespace } from "../../../test/cluster/cluster.js";
import { toolcall } from "../src/index.js";

describe("ComputeSDK provider", { skip: !hasCluster && "set TOOLCALL_SCENARIOS=1 and KUBECONFIG", timeout: 180_000 }, () => {
  let namespace: TestNamespace;
  let client: Toolcall;
  let provider: Provider<Session>;
  let sandbox: ProviderSandbox<Session>;

  before(async () => {
    namespace = await TestNamespace.create();
    client = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agent });
    provider = toolcall({ client });
    sandbox = await provider.sandbox.create({ templateId: "tools", envs: { FRUIT: "pear" }, directory: "/workspace", timeout: 600_000 });
  });

  after(async () => {
    await sandbox?.destroy();
    client?.close();
    await namespace?.remove();
  });

  // What ComputeSDK's benchmark calls the time to interactive: create to the end of the first command.
  it("creates a sandbox and runs a first command through compute", async () => {
    compute.setConfig({ provider });
    const first = await compute.sandbox.create();
    try {
      const { stdout, exitCode } = await first.runCommand("echo ready");
      assert.deepEqual([stdout, exitCode], ["ready\n", 0]);
    } finally {
      await first.destroy();
    }
    await first.destroy();
    // It has ended once the operator has seen to it.
    while ((await compute.sandbox.getById(first.sandboxId)) !== null);
  });

  it("runs commands with a directory and variables", async () => {
    const done = await sandbox.runCommand('echo "$FRUIT and $OTHER in $(pwd)"; echo problem >&2; exit 3', { cwd: "/tmp", env: { OTHER: "fig" } });
    assert.deepEqual([done.stdout, done.stderr, done.exitCode], ["pear and fig in /tmp\n", "problem\n", 3]);
    assert.ok(done.durationMs >= 0);
  });

  it("shows output while it is written", async () => {
    const seen: string[] = [];
    const done = await sandbox.runCommand("echo one; echo two >&2", { onStdout: (text) => seen.push(text), onStderr: (text) => seen.push(text) });
    assert.deepEqual(seen.sort(), ["one\n", "two\n"]);
    assert.equal(done.stdout, "one\n");
  });

  it("runs a command beside the others", async () => {
    assert.equal((await sandbox.runCommand("sleep 100", { background: true })).exitCode, 0);
    assert.equal((await sandbox.runCommand("echo beside")).stdout, "beside\n");
  });

  it("says what would pass of a command that may not run", async () => {
    const done = await sandbox.runCommand("curl example.org");
    assert.equal(done.exitCode, 126);
    assert.match(done.stderr, /curl/);
  });

  it("stops a command at its time limit, and keeps what it wrote", async () => {
    const done = await sandbox.runCommand("echo before; sleep 60", { timeout: 900 });
    assert.deepEqual([done.stdout, done.exitCode], ["before\n", 124]);
  });

  it("throws when nobody knows the exit code", async () => {
    await assert.rejects(sandbox.runCommand("kill -9 $$"), (error) => error instanceof NonZeroExit && error.reason === "Signaled");
  });

  it("has files", async () => {
    const { filesystem } = sandbox;
    await filesystem.writeFile("/workspace/dir/a.txt", "café\n");
    await filesystem.mkdir("/workspace/dir/sub");
    assert.equal(await filesystem.readFile("/workspace/dir/a.txt"), "café\n");
    const entries = (await filesystem.readdir("/workspace/dir")).map(({ name, type, size }) => [name, type, size]);
    assert.deepEqual(entries.sort(), [
      ["a.txt", "file", 6],
      ["sub", "directory", 0],
    ]);
    assert.equal(await filesystem.exists("/workspace/dir"), true);
    await filesystem.remove("/workspace/dir");
    assert.equal(await filesystem.exists("/workspace/dir"), false);
    await filesystem.remove("/workspace/dir");
    await assert.rejects(filesystem.readFile("/workspace/dir/a.txt"), NotFound);
  });

  it("is found and described", async () => {
    assert.ok((await provider.sandbox.list()).some(({ sandboxId }) => sandboxId === sandbox.sandboxId));
    const found = await provider.sandbox.getById(sandbox.sandboxId);
    assert.equal(found?.getInstance().uid, sandbox.getInstance().uid);
    const { id, status, timeout, createdAt } = await sandbox.getInfo();
    assert.deepEqual([id, status, timeout], [sandbox.sandboxId, "running", 600_000]);
    assert.equal(createdAt.getTime(), sandbox.getInstance().created.getTime());
    for (const id of ["not-there", "Not_there"]) {
      assert.equal(await provider.sandbox.getById(id), null);
      await provider.sandbox.destroy(id);
    }
  });

  it("is named, and bears metadata", async () => {
    const named = await provider.sandbox.create({ name: "desk", metadata: { conversation: "c-1", turn: 2 } });
    assert.equal(named.sandboxId, "desk");
    const { metadata } = await namespace.get("ToolSession", "desk");
    assert.deepEqual([metadata?.annotations?.conversation, metadata?.annotations?.turn], ["c-1", "2"]);
    await named.destroy();
  });

  it("refuses what it doesn't have", async () => {
    await assert.rejects(provider.sandbox.create({ image: "debian" }), InvalidArgument);
    await assert.rejects(sandbox.getUrl({ port: 80 }), InvalidArgument);
    await assert.rejects(toolcall({ client, environment: "not-there" }).sandbox.create(), NotFound);
  });
});
