// What the scenarios don't say: lists, handles on what is there, callbacks, and errors with nothing to show.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { writeFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { inspect, promisify } from "node:util";
import { CoreV1Api, CustomObjectsApi, KubeConfig } from "@kubernetes/client-node";
import {
  Cancelled,
  FileFailed,
  Forbidden,
  InvalidArgument,
  NotFound,
  OutputNotKept,
  PodLost,
  SessionEnded,
  Toolcall,
  type Session,
  type SessionInfo,
  type ToolcallError,
} from "../../src/index.js";
import { Toolcall as Published } from "@toolcall/client";
import { work } from "../../examples/agent-loop.js";
import type { Message } from "../../examples/model.js";
import { hasCluster, TestNamespace } from "./cluster.js";

// Keeps little of what calls write.
const FORGETFUL = `
apiVersion: toolcall.dev/v1alpha1
kind: ExecutionPolicy
metadata: {name: "\${namespace}-forgetful"}
spec:
  shell: {enabled: true}
  output: {maxBytesPerStream: 4096, keepBytesPerStream: 65536}
---
apiVersion: toolcall.dev/v1alpha1
kind: ExecutionEnvironment
metadata: {name: forgetful, namespace: "\${namespace}"}
spec:
  image: toolcall.dev/tools:dev
  imagePullPolicy: IfNotPresent
  policyRef: {name: "\${namespace}-forgetful"}
`;

async function errorOf(work: Promise<unknown>): Promise<ToolcallError> {
  return work.then(
    () => assert.fail("it should throw"),
    (error: unknown) => error as ToolcallError,
  );
}

describe("client", { skip: !hasCluster && "set TOOLCALL_SCENARIOS=1 and KUBECONFIG", timeout: 300_000 }, () => {
  let namespace: TestNamespace;
  let client: Toolcall;
  let session: Session;

  before(async () => {
    namespace = await TestNamespace.create();
    client = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agent });
    session = await client.session("tools");
  });

  after(async () => {
    await session?.end();
    client?.close();
    await namespace?.remove();
  });

  const unique = (prefix: string): string => `${prefix}-${randomBytes(4).toString("hex")}`;

  it("lists calls and sessions page by page", async () => {
    const other = await client.session("tools");
    const names = await Promise.all([1, 2, 3, 4, 5].map(async () => (await other.commands.run("true")).call));
    const found: string[] = [];
    for await (const call of client.calls({ page: 2, session: other.name, phase: "Succeeded" })) {
      assert.deepEqual([call.session, call.phase, call.reason], [other.name, "Succeeded", "Completed"]);
      found.push(call.name);
    }
    assert.deepEqual(found.sort(), names.sort());
    await other.end();
    const listed = await find(client, session.name);
    assert.deepEqual([listed?.phase, listed?.environment], ["Ready", "tools"]);
    assert.ok(Math.abs(Date.now() - (listed?.created.getTime() ?? 0)) < 600_000);
    assert.equal(await session.phase(), "Ready");
    assert.throws(() => client.calls({ page: 0 }), InvalidArgument);
  });

  it("finds sessions and calls that other programs have made", async () => {
    const again = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agent });
    const connected = await again.connect(session.name, { cwd: "/tmp" });
    assert.equal(connected.uid, session.uid);
    const key = unique("shared");
    assert.equal((await session.commands.run("pwd; sleep 0.5", { key, cwd: "/tmp" })).stdout, "/tmp\n");
    assert.equal((await connected.commands.run("pwd; sleep 0.5", { key })).stdout, "/tmp\n");
    assert.ok((await errorOf(connected.commands.connect(key))) instanceof InvalidArgument);
    const started = await session.commands.run("pwd", { background: true, cwd: "/tmp" });
    const handle = await connected.commands.connect(started.call);
    assert.equal((await handle.wait()).stdout, "/tmp\n");
    assert.equal((await handle.read({ offset: 1 })).text, "tmp\n");
    assert.ok((await errorOf(again.connect("nowhere"))) instanceof NotFound);
    const missing = await errorOf(connected.commands.connect("nowhere"));
    assert.ok(missing instanceof NotFound);
    assert.deepEqual([missing.code, missing.call], [404, "nowhere"]);
    again.close();
  });

  it("waits for a call that another program with the same key has started", async () => {
    const again = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agent });
    const connected = await again.connect(session.name);
    const key = unique("both");
    const command = "echo x >> both; sleep 1; wc -l < both";
    const [a, b] = await Promise.all([session.commands.run(command, { key }), connected.commands.run(command, { key })]);
    assert.deepEqual([a.stdout, b.stdout], ["1\n", "1\n"]);
    again.close();
  });

  it("stops a call by its name", async () => {
    const handle = await session.commands.run("echo up; sleep 60", { background: true });
    assert.equal((await handle.read({ waitFor: 30 })).text, "up\n");
    await client.cancel(handle.call);
    const error = await errorOf(handle.wait());
    assert.ok(error instanceof Cancelled);
    assert.equal(error.result?.stdout, "up\n");
    await client.cancel("nowhere");
  });

  it("reads the files that a call kept", async () => {
    const result = await session.commands.run("echo one > a.txt; printf '\\377\\0' > b.bin", { collect: ["*.txt", "*.bin"] });
    assert.deepEqual(result.artifacts.map((a) => a.path), ["a.txt", "b.bin"]);
    assert.equal((await client.artifact(result, "a.txt")).toString(), "one\n");
    assert.deepEqual([...(await session.commands.artifact(result.call, "b.bin"))], [255, 0]);
    await assert.rejects(client.artifact(result, "c"), NotFound);
  });

  it("knows no exit code when the pod is lost", async () => {
    const own = await client.session("tools");
    const running = errorOf(own.commands.run("sleep 60"));
    const core = namespace.admin.makeApiClient(CoreV1Api);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    const pods = await core.listNamespacedPod({ namespace: namespace.name, labelSelector: `toolcall.dev/session-uid=${own.uid}` });
    const name = pods.items[0]?.metadata?.name ?? "";
    await core.deleteNamespacedPod({ namespace: namespace.name, name, gracePeriodSeconds: 0 });
    const error = await running;
    assert.ok(error instanceof PodLost || error instanceof Cancelled, `${error.name}: ${error.message}`);
    assert.equal(error.result?.exitCode ?? null, null);
    assert.equal(error.retrySafe, false);
    await until(async () => (await find(client, own.name))?.phase === "Ended");
    const next = await errorOf(own.commands.run("true"));
    assert.ok(next instanceof SessionEnded, `${next.name}: ${next.message}`);
    assert.equal(next.retrySafe, true);
  });

  it("says that a call was deleted while somebody waited for it", async () => {
    const keys = [unique("deleted"), unique("deleted")] as const;
    const running = errorOf(session.commands.run("sleep 30", { key: keys[0] }));
    const handle = errorOf((await session.commands.run("sleep 30", { key: keys[1], background: true })).wait());
    await until(async () => {
      const names: string[] = [];
      for await (const call of client.calls({ session: session.name })) {
        names.push(call.name);
      }
      return keys.every((key) => names.includes(key));
    });
    const kind = { group: "toolcall.dev", version: "v1alpha1", plural: "toolcalls", namespace: namespace.name };
    const custom = namespace.agent.makeApiClient(CustomObjectsApi);
    await Promise.all(keys.map((name) => custom.deleteNamespacedCustomObject({ ...kind, name })));
    for (const [i, error] of [await running, await handle].entries()) {
      assert.ok(error instanceof NotFound, `${error.name}: ${error.message}`);
      assert.deepEqual([error.reason, error.call, error.retrySafe], ["Deleted", keys[i], false]);
    }
  });

  it("cancels the call and throws what a callback threw", async () => {
    const key = unique("thrown");
    const thrown = new Error("enough");
    const command = "echo a; sleep 60";
    const failing = (): never => {
      throw thrown;
    };
    assert.equal(await errorOf(session.commands.run(command, { key, onStdout: failing })), thrown);
    assert.ok((await errorOf(session.commands.run(command, { key }))) instanceof Cancelled);
  });

  it("gives a handle's callbacks each byte once, however often it is waited for, and cancels when one throws", async () => {
    let live = "";
    const handle = await session.commands.run("echo a; sleep 0.3; echo b", { background: true, onStdout: (text) => (live += text) });
    await Promise.all([handle.wait(), handle.wait()]);
    await handle.wait();
    assert.equal(live, "a\nb\n");
    const thrown = new Error("enough");
    const failing = (): never => {
      throw thrown;
    };
    const other = await session.commands.run("echo a; sleep 60", { background: true, onStdout: failing });
    const error = await errorOf(other.wait());
    assert.equal(error, thrown);
    assert.ok((await errorOf((await session.commands.connect(other.call)).wait())) instanceof Cancelled);
  });

  it("waits for a callback, and gives it every byte all the same", async () => {
    let live = "";
    const slow = async (text: string): Promise<void> => {
      await new Promise((resolve) => setTimeout(resolve, 20));
      live += text;
    };
    await session.commands.run("seq 1 20000", { onStdout: slow });
    assert.equal(live, Array.from({ length: 20000 }, (_, i) => `${i + 1}\n`).join(""));
  });

  it("creates nothing when the signal is aborted before", async () => {
    const key = unique("never");
    const error = await errorOf(session.commands.run("true", { key, signal: AbortSignal.abort() }));
    assert.ok(error instanceof Cancelled);
    assert.equal(error.retrySafe, true);
    assert.ok((await errorOf(session.commands.connect(key))) instanceof NotFound);
  });

  it("gives the same session for the same key", async () => {
    const key = unique("desk");
    const [a, b] = await Promise.all([client.session("tools", { key }), client.session("tools", { key })]);
    assert.equal(a.uid, b.uid);
    assert.equal((await errorOf(client.session("tools", { key, maxLifetime: 60 }))).name, "KeyReused");
    await a.end();
    await b.end();
  });

  it("shows no credentials when errors and objects are logged", async () => {
    const token = namespace.agent.getCurrentUser()?.token ?? "";
    const error = await errorOf(session.commands.run("curl example.org"));
    const failed = await errorOf(session.commands.connect("nowhere"));
    const handle = await session.commands.run("true", { background: true });
    for (const object of [error, failed, session, handle, client, await handle.wait()]) {
      const shown = inspect(object, { depth: 30, showHidden: true }) + JSON.stringify(object);
      assert.ok(!shown.includes(token) && !shown.includes("KubeConfig"), shown);
    }
  });

  it("reads at the end of an output, and refuses what lies behind it", async () => {
    const handle = await session.commands.run("printf abc", { background: true });
    await handle.wait();
    const end = await handle.read({ offset: 3, waitFor: 5 });
    assert.deepEqual([end.text, end.nextOffset, end.complete], ["", 3, true]);
    await assert.rejects(handle.read({ offset: 4 }), InvalidArgument);
    await assert.rejects(handle.read({ offset: -1 }), InvalidArgument);
  });

  it("gives up a session that isn't ready, and ends it", async () => {
    const stop = new AbortController();
    const starting = errorOf(client.session("tools", { signal: stop.signal }));
    setTimeout(() => stop.abort(), 50);
    assert.ok((await starting) instanceof Cancelled);
    await until(() => isAlone(client, session));
  });

  it("says why a large file is refused, without sending it for long", async () => {
    const started = Date.now();
    const large = new Uint8Array(20_000_000);
    const error = await errorOf(session.files.write("key.pem", large));
    assert.ok(error instanceof Forbidden, String(error));
    assert.equal(error.reason, "PathNotAllowed");
    assert.ok((await errorOf(session.files.write("/workspace", large))) instanceof FileFailed);
    assert.ok(Date.now() - started < 20_000);
  });

  it("gives up a transfer", async () => {
    await session.files.write("large.bin", new Uint8Array(8_000_000));
    const stop = new AbortController();
    const reading = errorOf(session.files.read("large.bin", { format: "bytes", signal: stop.signal }));
    setTimeout(() => stop.abort(), 5);
    assert.ok((await reading) instanceof Cancelled);
  });

  it("takes other credentials once the ones that it has are refused", async () => {
    const user = { name: "agent", token: "stale" };
    const cluster = namespace.agent.getCurrentCluster();
    assert.ok(cluster);
    const config = new KubeConfig();
    config.loadFromClusterAndUser(cluster, user);
    const own = new Toolcall({ namespace: namespace.name, kubeConfig: config });
    const error = await errorOf(own.calls().next());
    assert.ok(error instanceof Forbidden);
    assert.equal(error.code, 401);
    user.token = namespace.agent.getCurrentUser()?.token ?? "";
    assert.equal((await own.calls().next()).done, false);
    own.close();
  });

  it("says why a session can't start", async () => {
    const error = await errorOf(client.session("not-there"));
    assert.match(error.message, /not-there/);
    assert.equal(error.retrySafe, true);
  });

  it("keeps the file when a condition doesn't hold", async () => {
    const { sha256 } = await session.files.write("if.txt", "one", { ifSHA256: "", mode: "0600" });
    assert.equal((await session.files.stat("if.txt")).mode, "0600");
    await assert.rejects(session.files.write("if.txt", "two", { ifSHA256: "" }), FileFailed);
    await session.files.write("if.txt", "two", { ifSHA256: sha256 ?? "" });
    const large = new Uint8Array(600_000).fill(97);
    await assert.rejects(session.files.write("if.txt", large, { ifSHA256: sha256 ?? "" }), FileFailed);
    const done = await session.files.write("if.txt", large, { ifSHA256: createHash("sha256").update("two").digest("hex") });
    assert.equal(done.bytes, 600_000);
    assert.equal((await session.files.read("if.txt", { format: "bytes" })).length, 600_000);
    await assert.rejects(session.files.write("if.txt", large, { mode: "0600" }), InvalidArgument);
  });

  it("reads more lines than one call returns", async () => {
    await session.commands.run("seq 1 30000 > many");
    const text = await session.files.read("many", { offset: 10, limit: 29000 });
    assert.equal(text, Array.from({ length: 29000 }, (_, i) => `${i + 10}\n`).join(""));
  });

  it("says which part of an output wasn't kept, and gives the rest", async () => {
    await namespace.apply(FORGETFUL);
    const own = await client.session("forgetful");
    let live = "";
    const command = "for i in $(seq -f %07.0f 0 131071); do echo $i; done";
    const result = await own.commands.run(command, { onStdout: (text) => (live += text) });
    assert.equal(result.truncated, true);
    assert.equal(result.object.status?.streams?.stdout.bytes, 1024 * 1024);
    const error = await errorOf(client.output(result));
    assert.ok(error instanceof OutputNotKept, String(error));
    const next = Number(/offset (\d+)$/.exec(error.message)?.[1]);
    const end = await client.output(result, { offset: next });
    assert.equal(next + end.length, 1024 * 1024);
    assert.ok(end.toString().endsWith("\n0131070\n0131071\n"));
    assert.equal((await client.output(result, { offset: 8, limit: 8 })).toString(), "0000001\n");
    // What was read in time is there in its order; what comes behind a part that wasn't kept, too.
    const numbers = live.split("\n").filter((line) => line.length === 7).map(Number);
    assert.ok(numbers.every((n, i) => i === 0 || n > (numbers[i - 1] ?? 0)));
    assert.ok(live.startsWith("0000000\n0000001\n") && live.endsWith("\n0131071\n"));
    await own.end();
  });

  it("reads a file of a session that was suspended, once it has a pod again", async () => {
    const own = await client.session("tools", { workspace: { size: "16Mi" }, idleTimeout: 1 });
    await own.files.write("keep.txt", "kept");
    await until(async () => (await own.phase()) === "Suspended");
    assert.equal(await own.files.read("keep.txt"), "kept");
    await own.end();
  });

  it("says that a list is cut", async () => {
    await session.files.mkdir("crowd");
    const command = "for i in $(seq -f %04.0f 1 1200); do echo > a-file-with-a-long-name-that-takes-much-room-$i; done";
    await session.commands.run(command, { cwd: "crowd", check: true });
    const found = await session.files.list("crowd");
    assert.equal(found.truncated, true);
    assert.ok(found.length > 100 && found.length <= 1000, String(found.length));
    assert.equal(found[99]?.path, "a-file-with-a-long-name-that-takes-much-room-0100");
    const few = await session.files.list("crowd", { maxResults: 2 });
    assert.deepEqual([few.length, few.truncated], [2, true]);
    assert.equal((await session.files.list(".")).truncated, false);
  });

  it("runs a model's tool call as it was emitted", async () => {
    const result = await session.commands.run({ tool: "bash", arguments: { command: "echo tool" } });
    assert.equal(result.stdout, "tool\n");
  });

  it("is refused where it has no rights", async () => {
    const elsewhere = new Toolcall({ namespace: "default", kubeConfig: namespace.agent });
    const error = await errorOf(elsewhere.run("true"));
    assert.ok(error instanceof Forbidden);
    assert.deepEqual([error.code, error.retrySafe], [403, true]);
    elsewhere.close();
  });

  it("lets the agent's loop of the comparison answer its model", async () => {
    const asked = (...lines: string[]): Message => ({ role: "assistant", content: "", commands: lines.map((line, i) => ({ id: `call-${i}`, line })) });
    const script = [asked("echo pear > fruit; cat fruit", "curl example.org"), asked("cat fruit >&2; exit 3"), { role: "assistant", content: "done" } as const];
    let heard: readonly Message[] = [];
    const model = async (messages: readonly Message[]): Promise<Message> => {
      heard = messages;
      return script.shift() ?? asked();
    };
    using own = new Published({ namespace: namespace.name, kubeConfig: namespace.agent });
    assert.equal(await work("What is there?", model, own), "done");
    const [first, denied, failed] = heard.filter(({ role }) => role === "tool").map(({ content }) => content);
    assert.match(first ?? "", /^pear\n/);
    assert.match(denied ?? "", /"curl" is not listed/);
    assert.match(failed ?? "", /^pear\n[^]*exited with code 3/);
  });

  it("lets the program of the quick start end by itself, and ends its session", async () => {
    const folder = await mkdtemp(join(tmpdir(), "toolcall-"));
    try {
      const kubeconfig = join(folder, "kubeconfig");
      await writeFile(kubeconfig, namespace.agent.exportConfig());
      const program = join(import.meta.dirname, "../../examples/quick-start.js");
      const env = { ...process.env, KUBECONFIG: kubeconfig };
      const args = [...process.execArgv.filter((arg) => arg.startsWith("--import")), program, namespace.name, "tools"];
      const { stdout } = await promisify(execFile)(process.execPath, args, { env, timeout: 60_000 });
      const expected = ["0 hello from /workspace", "fig", "pear", "Succeeded Completed", "times: 1", "times: 1", "server: to the server", "log notes.txt"];
      assert.deepEqual(stdout.trim().split("\n"), [...expected, "denied: ShellCommandNotAllowed true"]);
      await until(() => isAlone(client, session));
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

// Waits until what is asked for is so, for 20 seconds.
async function until(isSo: () => Promise<boolean>): Promise<void> {
  for (let i = 0; !(await isSo()); i++) {
    assert.ok(i < 80, "it should be so within 20 s");
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

// What a list says of a session.
async function find(client: Toolcall, name: string): Promise<SessionInfo | undefined> {
  for await (const session of client.sessions()) {
    if (session.name === name) {
      return session;
    }
  }
  return undefined;
}

// Whether every other session has ended.
async function isAlone(client: Toolcall, own: Session): Promise<boolean> {
  for await (const session of client.sessions()) {
    if (session.phase !== "Ended" && session.name !== own.name) {
      return false;
    }
  }
  return true;
}
