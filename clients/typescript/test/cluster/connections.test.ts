// What happens when answers are lost and connections break: a real TCP proxy stands before the API server.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Cancelled, Toolcall, Unavailable, type Session } from "../../src/index.js";
import { hasCluster, TestNamespace } from "./cluster.js";
import { Proxy } from "./proxy.js";

const CREATE = /^POST \S+\/toolcalls HTTP/;
const WATCH = /^GET \S+\/toolcalls\?watch=true/;
const FOLLOW = /^GET \S+\/log\?\S*follow=true/;

describe("broken connections", { skip: !hasCluster && "set TOOLCALL_SCENARIOS=1 and KUBECONFIG", timeout: 300_000 }, () => {
  let namespace: TestNamespace;
  let proxy: Proxy;
  let client: Toolcall;
  let session: Session;
  let folder: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "toolcall-"));
    namespace = await TestNamespace.create();
    proxy = await Proxy.listen(namespace.agent);
    client = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agentAt(proxy.url), patience: 30 });
    session = await client.session("tools");
  });

  after(async () => {
    await session?.end();
    client?.close();
    proxy?.close();
    await namespace?.remove();
    await rm(folder, { recursive: true });
  });

  const lines = async (file: string): Promise<string> => (await session.commands.run(`wc -l < ${file}`)).stdout.trim();

  it("creates a call once when answers to the request are lost", async () => {
    const before = proxy.broken;
    proxy.breakAnswers(CREATE, { times: 3 });
    // It lasts: the watch may see its end before an answer comes.
    const result = await session.commands.run("sleep 2; echo x >> once; echo done");
    assert.equal(result.stdout, "done\n");
    assert.equal(proxy.broken - before, 3);
    assert.equal(await lines("once"), "1");
  });

  it("creates a session once when the answer to the request is lost", async () => {
    proxy.breakAnswers(/^POST \S+\/toolsessions HTTP/);
    const key = `once-${randomBytes(4).toString("hex")}`;
    const other = await client.session("tools", { key });
    assert.equal(other.name, key);
    await other.end();
  });

  it("goes on watching when the watch breaks, and when the end comes while there is none", async () => {
    const before = proxy.broken;
    proxy.breakAnswers(WATCH, { times: 4 });
    proxy.breakAll();
    assert.equal((await session.commands.run("sleep 1; echo end")).stdout, "end\n");
    assert.ok(proxy.broken - before >= 1);
  });

  it("gets the result of a call that ends while the API can't be reached", async () => {
    const running = session.commands.run("sleep 1; echo x >> away; echo meanwhile");
    await sleep(500);
    proxy.goAway(true);
    await sleep(3_000);
    proxy.goAway(false);
    assert.equal((await running).stdout, "meanwhile\n");
    assert.equal(await lines("away"), "1");
  });

  it("loses and doubles no byte of live output when each follow breaks after some bytes", async () => {
    const before = proxy.broken;
    proxy.breakAnswers(FOLLOW, { after: 700, times: 25 });
    let live = "";
    const command = "for i in $(seq 1 2000); do echo line $i; [ $((i % 100)) -ne 0 ] || sleep 0.1; done";
    const result = await session.commands.run(command, { onStdout: (text) => (live += text) });
    const expected = Array.from({ length: 2000 }, (_, i) => `line ${i + 1}\n`).join("");
    assert.equal(live, expected);
    assert.equal(result.exitCode, 0);
    assert.ok(proxy.broken - before >= 3, `${proxy.broken - before} follows broke`);
  });

  it("loses and doubles no byte of live output when every connection breaks again and again", async () => {
    let live = "";
    const timer = setInterval(() => proxy.breakAll(), 350);
    try {
      const command = "echo x >> torn; for i in $(seq 1 60); do echo tick $i; sleep 0.05; done";
      await session.commands.run(command, { onStdout: (text) => (live += text) });
    } finally {
      clearInterval(timer);
    }
    assert.equal(live, Array.from({ length: 60 }, (_, i) => `tick ${i + 1}\n`).join(""));
    assert.equal(await lines("torn"), "1");
  });

  it("writes each byte of standard input once when answers are lost", async () => {
    const cat = await session.commands.run({ program: "cat" }, { background: true });
    proxy.breakAnswers(/^POST \S+\/proxy\/input\?/, { times: 2 });
    await cat.write("one\n");
    await cat.write("two\n");
    proxy.breakAnswers(/^POST \S+\/proxy\/input\?/, { times: 1 });
    await cat.write("three\n", { eof: true });
    assert.equal((await cat.wait()).stdout, "one\ntwo\nthree\n");
  });

  it("doubles and swallows nothing after a write that failed", async () => {
    const impatient = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agentAt(proxy.url), patience: 1 });
    const connected = await impatient.connect(session.name);
    const cat = await connected.commands.run({ program: "cat" }, { background: true });
    await cat.write("one\n");
    proxy.breakAnswers(/^POST \S+\/proxy\/input\?/, { times: 20 });
    await assert.rejects(cat.write("taken, and never answered\n"), Unavailable);
    proxy.forget();
    await cat.write("two\n", { eof: true });
    assert.equal((await cat.wait()).stdout, "one\ntaken, and never answered\ntwo\n");
    impatient.close();
  });

  it("finds out what was written before by others, and writes behind it", async () => {
    const cat = await session.commands.run({ program: "cat" }, { background: true });
    await cat.write("first\n");
    const again = await (await client.connect(session.name)).commands.connect(cat.call);
    await again.write("second\n", { eof: true });
    assert.equal((await again.wait()).stdout, "first\nsecond\n");
  });

  it("uploads once when the answer is lost, and downloads on where the connection broke", async () => {
    const data = randomBytes(3 * 1024 * 1024);
    const [from, to] = [join(folder, "from"), join(folder, "to")];
    await writeFile(from, data);
    const before = proxy.broken;
    proxy.breakAnswers(/^PUT /);
    const up = await session.files.upload(from, "data.bin", { ifSHA256: "" });
    assert.equal(up.sha256, createHash("sha256").update(data).digest("hex"));
    proxy.breakAnswers(/^GET \S+\/proxy\/files/, { after: 1_000_000, times: 2 });
    const down = await session.files.download("data.bin", to);
    assert.deepEqual([down.bytes, down.sha256], [data.length, up.sha256]);
    assert.ok((await readFile(to)).equals(data));
    assert.equal(proxy.broken - before, 3);
  });

  it("reads a large output whole when the connection breaks in between", async () => {
    const result = await session.commands.run("seq 1 100000");
    assert.equal(result.truncated, true);
    proxy.breakAnswers(/^GET \S+\/log\?/, { after: 200_000, times: 2 });
    const expected = Array.from({ length: 100000 }, (_, i) => `${i + 1}\n`).join("");
    assert.equal((await client.output(result)).toString("utf8"), expected);
  });

  it("reads a kept file whole when the connection breaks in between", async () => {
    const before = proxy.broken;
    const result = await session.commands.run("seq 1 100000 > numbers", { collect: ["numbers"] });
    proxy.breakAnswers(/^GET \S+\/log\?artifact/, { after: 200_000, times: 2 });
    const data = await client.artifact(result, "numbers");
    assert.equal(createHash("sha256").update(data).digest("hex"), result.artifacts[0]?.sha256);
    assert.equal(proxy.broken - before, 2);
  });

  it("cancels a call when the answer to that is lost", async () => {
    const stop = new AbortController();
    const key = `lost-${randomBytes(4).toString("hex")}`;
    const running = session.commands.run("sleep 60", { key, signal: stop.signal });
    setTimeout(() => stop.abort(new Error("enough")), 700);
    proxy.breakAnswers(/^PATCH /);
    const error = await running.then(() => assert.fail("it should throw"), (e: unknown) => e);
    assert.ok(error instanceof Cancelled);
    assert.equal((error.cause as Error).message, "enough");
    assert.equal(error.call, key);
    await assert.rejects(session.commands.run("sleep 60", { key }), Cancelled);
  });

  it("leaves another's call of the same key alone when it is given up before anything is known", async () => {
    const key = `other-${randomBytes(4).toString("hex")}`;
    const other = await session.commands.run("sleep 4; echo finished", { key, background: true });
    proxy.breakAnswers(CREATE, { times: 1_000 });
    const error = await session.commands.run("echo mine", { key, signal: AbortSignal.timeout(700) }).then(
      () => assert.fail("it should throw"),
      (e: unknown) => e,
    );
    proxy.forget();
    assert.ok(error instanceof Cancelled, String(error));
    assert.equal((await other.wait()).stdout, "finished\n");
  });

  it("cancels its own call when it is given up before an answer came", async () => {
    const key = `own-${randomBytes(4).toString("hex")}`;
    proxy.breakAnswers(CREATE, { times: 1_000 });
    const running = session.commands.run("sleep 60", { key, signal: AbortSignal.timeout(700) });
    await assert.rejects(running, Cancelled);
    proxy.forget();
    await assert.rejects(session.commands.run("sleep 60", { key }), Cancelled);
  });

  it("counts its patience from the first failure, however long it has waited before", async () => {
    const impatient = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agentAt(proxy.url), patience: 1 });
    let live = "";
    const running = impatient.run("echo begun; sleep 4; echo end", { onStdout: (text) => (live += text) });
    await sleep(3_500);
    proxy.breakAll();
    assert.equal((await running).stdout, "begun\nend\n");
    assert.equal(live, "begun\nend\n");
    impatient.close();
  });

  it("says Unavailable, with the call's name, when the API stays away", async () => {
    const impatient = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agentAt(proxy.url), patience: 1 });
    const running = impatient.run("sleep 3; echo still");
    await sleep(400);
    proxy.goAway(true);
    const error = await running.then(() => assert.fail("it should throw"), (e: unknown) => e);
    proxy.goAway(false);
    assert.ok(error instanceof Unavailable, String(error));
    assert.equal(error.retrySafe, false);
    // The call itself goes on, and its name is the key with which it can be asked for.
    assert.equal((await client.run("sleep 3; echo still", { key: error.call ?? "" })).stdout, "still\n");
    impatient.close();
  });
});
