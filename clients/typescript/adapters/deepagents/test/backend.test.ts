// The backend against the real cluster: by itself, in images that have nothing but the runner, or a shell, and under deepagents' own
// agent.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Toolcall, type Session } from "@toolcall/client";
import { createDeepAgent, isSandboxProtocol } from "deepagents";
import { AIMessage, fakeModel, type BaseMessage } from "langchain";
import { hasCluster, TestNamespace } from "../../../test/cluster/cluster.js";
import { ToolcallBackend } from "../src/index.js";

// Loaded by `make load-tools`: bash and a few of the coreutils.
const SHELL_IMAGE = "toolcall.dev/shell:dev";

const environment = (name: string, image: string): string => `
apiVersion: toolcall.dev/v1alpha1
kind: ExecutionEnvironment
metadata: {name: ${name}, namespace: "\${namespace}"}
spec:
  image: ${image}
  imagePullPolicy: IfNotPresent
  workingDir: /workspace
  policyRef: {name: "\${namespace}"}
`;

it("says why there is nothing to read", async () => {
  const note = "it is so";
  const read = async (lines: object, offset = 0): Promise<object> => {
    const session = { name: "s", files: { readLines: async () => lines } } as unknown as Session;
    return new ToolcallBackend(session).read("/a", offset);
  };
  assert.deepEqual(await read({ text: "", note, binary: true }), { error: note });
  assert.deepEqual(await read({ text: "", note, binary: false }, 9), { error: note });
  assert.deepEqual(await read({ text: "", note, binary: false }), { content: "", mimeType: "text/plain" });
});

it("reads all lines for a limit that isn't one, and says where not all could be read", async () => {
  const asked: object[] = [];
  const read = async (limit: number, note?: string): Promise<object> => {
    const readLines = async (_: string, range: object): Promise<object> => (asked.push(range), { text: "a\nb\n", note, binary: false });
    return new ToolcallBackend({ name: "s", files: { readLines } } as unknown as Session).read("/a", 0, limit);
  };
  const lines = { content: "a\nb", mimeType: "text/plain", startLine: 1, endLine: 2 };
  for (const limit of [Number.POSITIVE_INFINITY, Number.MAX_SAFE_INTEGER, Number.NaN]) {
    assert.deepEqual([await read(limit), asked.pop()], [{ ...lines, totalLines: 2 }, { offset: 1 }]);
  }
  assert.deepEqual([await read(9, "line 3 is too long"), asked.pop()], [{ ...lines, nextOffset: 2 }, { offset: 1, limit: 10 }]);
});

describe("deepagents backend", { skip: !hasCluster && "set TOOLCALL_SCENARIOS=1 and KUBECONFIG", timeout: 180_000 }, () => {
  let namespace: TestNamespace;
  let client: Toolcall;
  let session: Session;
  let backend: ToolcallBackend;

  before(async () => {
    namespace = await TestNamespace.create();
    await namespace.apply(environment("empty", await namespace.emptyImage()));
    await namespace.apply(environment("shell", SHELL_IMAGE));
    client = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agent });
    session = await client.session("empty");
    backend = new ToolcallBackend(session);
  });

  after(async () => {
    await session?.end();
    client?.close();
    await namespace?.remove();
  });

  it("is what deepagents takes for a sandbox", () => {
    assert.ok(isSandboxProtocol(backend));
    assert.equal(backend.id, session.name);
  });

  it("says that there is no shell in an image without one", async () => {
    const answer = await backend.execute("true");
    assert.equal(answer.exitCode, null);
    assert.match(answer.output, /bash/);
  });

  it("runs commands in an image that has a shell, and no python", async () => {
    await using own = await client.session("shell");
    const shell = new ToolcallBackend(own, { timeout: 20 });
    await shell.write("/workspace/fruit.txt", "pear\nfig\n");
    const failed = await shell.execute("sort fruit.txt; echo problem >&2; exit 3");
    assert.match(failed.output, /^fig\npear\nproblem\n\nCommand exited with code 3\n\nTook \d+\.\ds$/);
    assert.deepEqual([failed.exitCode, failed.truncated], [3, false]);
    const counted = await shell.execute("cat fruit.txt | wc -l");
    assert.match(counted.output, /^2\n\nTook /);
    assert.equal(counted.exitCode, 0);
    const python = await shell.execute("python3 -V");
    assert.equal(python.exitCode, 127);
    assert.match(python.output, /python3: command not found/);
  });

  it("writes, reads and edits", async () => {
    assert.deepEqual(await backend.write("/workspace/a/notes.txt", "one\ntwo\nthree\n"), { path: "/workspace/a/notes.txt", filesUpdate: null });
    assert.deepEqual(await backend.read("/workspace/a/notes.txt"), {
      content: "one\ntwo\nthree",
      mimeType: "text/plain",
      startLine: 1,
      endLine: 3,
      totalLines: 3,
    });
    assert.deepEqual(await backend.read("/workspace/a/notes.txt", 1, 1), {
      content: "two",
      mimeType: "text/plain",
      startLine: 2,
      endLine: 2,
      nextOffset: 2,
    });
    assert.match((await backend.read("/workspace/a/notes.txt", 9)).error ?? "", /3 lines/);
    assert.equal((await backend.edit("/workspace/a/notes.txt", "two", "2")).occurrences, 1);
    assert.match((await backend.edit("/workspace/a/notes.txt", "four", "4")).error ?? "", /four|not|0/);
    assert.equal((await backend.edit("/workspace/a/notes.txt", "e", "E", true)).occurrences, 3);
    const raw = await backend.readRaw("/workspace/a/notes.txt");
    assert.ok(raw.data && "mimeType" in raw.data);
    assert.equal(raw.data.content, "onE\n2\nthrEE\n");
    assert.ok(!Number.isNaN(Date.parse(raw.data.modified_at)));
    assert.match((await backend.read("/workspace/nowhere")).error ?? "", /nowhere/);
    assert.match((await backend.read("/etc/shadow")).error ?? "", /shadow/);
  });

  it("fills an empty file by an edit without a text", async () => {
    await backend.write("/workspace/empty", "");
    assert.equal((await backend.edit("/workspace/empty", "", "full")).occurrences, 1);
    assert.match((await backend.edit("/workspace/empty", "", "more")).error ?? "", /isn't empty/);
    assert.equal((await backend.read("/workspace/empty")).content, "full");
  });

  it("lists and searches, from / as from the session's directory", async () => {
    const listed = (await backend.ls("/workspace")).files?.map(({ path, is_dir }) => [path, is_dir]);
    assert.deepEqual(listed, [
      ["/workspace/a/", true],
      ["/workspace/empty", false],
    ]);
    assert.deepEqual(await backend.ls("/"), await backend.ls("/workspace"));
    assert.match((await backend.ls("/workspace/none")).error ?? "", /none/);
    assert.deepEqual((await backend.glob("**/*.txt")).files?.map((f) => f.path), ["a/notes.txt"]);
    assert.deepEqual((await backend.glob("*", "/workspace/a")).files?.map((f) => f.path), ["notes.txt"]);
    await backend.write("/workspace/b.txt", "a.b\nacb\na.b\n");
    const matches = [1, 3].map((line) => ({ path: "/workspace/b.txt", line, text: "a.b" }));
    assert.deepEqual(await backend.grep("a.b"), { matches });
    assert.deepEqual(await backend.grep("a.b", "/workspace/b.txt"), { matches });
    assert.deepEqual(await backend.grep("a.b", "/workspace", "*.py"), { matches: [] });
    assert.deepEqual(await backend.grep("a.b", "/workspace", null, 1), { matches: matches.slice(0, 1), truncated: true });
  });

  it("carries bytes up and down", async () => {
    const bytes = Uint8Array.from({ length: 700_000 }, (_, i) => (i * 7) % 256);
    const small = Uint8Array.from([0, 255, 10]);
    const up = await backend.uploadFiles([
      ["/workspace/large.bin", bytes],
      ["/workspace/image.png", small],
      ["/workspace/key.pem", small],
      ["/workspace/a", small],
    ]);
    assert.deepEqual(up.map((u) => u.error), [null, null, "permission_denied", "is_directory"]);
    const down = await backend.downloadFiles(["/workspace/large.bin", "/workspace/image.png", "/workspace/gone", "/workspace/a"]);
    assert.deepEqual(down.map((d) => d.error), [null, null, "file_not_found", "is_directory"]);
    assert.ok(down[0]?.content && Buffer.from(down[0].content).equals(bytes));
    const image = await backend.read("/workspace/image.png");
    assert.equal(image.mimeType, "image/png");
    assert.deepEqual([...(image.content as Uint8Array)], [...small]);
  });

  it("deletes files and directories", async () => {
    assert.equal((await backend.delete("/workspace/a")).path, "/workspace/a");
    assert.match((await backend.delete("/workspace/a")).error ?? "", /workspace\/a/);
  });

  it("gives an agent a shell and files", async () => {
    await using tools = await client.session("tools");
    const answers: string[] = [];
    const seen = (messages: BaseMessage[]): AIMessage => {
      answers.push(...messages.filter((m) => m.type === "tool").map((m) => m.text));
      return new AIMessage("done");
    };
    const model = fakeModel()
      .respondWithTools([{ name: "write_file", args: { file_path: "/workspace/fruit.txt", content: "pear\nfig\n" } }])
      .respondWithTools([{ name: "execute", args: { command: "sort fruit.txt; echo problem >&2; exit 3" } }])
      .respondWithTools([{ name: "execute", args: { command: "curl example.org" } }])
      .respondWithTools([{ name: "read_file", args: { file_path: "/workspace/fruit.txt" } }])
      .respondWithTools([{ name: "edit_file", args: { file_path: "/workspace/fruit.txt", old_string: "fig", new_string: "plum" } }])
      .respondWithTools([{ name: "grep", args: { pattern: "plum" } }])
      .respondWithTools([{ name: "ls", args: { path: "/" } }])
      .respondWithTools([{ name: "glob", args: { pattern: "*.txt", path: "/workspace" } }])
      .respond(seen);
    const agent = createDeepAgent({ model, backend: new ToolcallBackend(tools, { timeout: 20 }) });
    await agent.invoke({ messages: [{ role: "user", content: "sort the fruit" }] }, { recursionLimit: 60 });
    const [written, sorted, denied, read, edited, found, listed, globbed] = answers;
    assert.match(written ?? "", /fruit\.txt/);
    assert.match(sorted ?? "", /fig\npear\nproblem[^]*3/);
    assert.match(denied ?? "", /curl/);
    assert.match(read ?? "", /pear[^]*fig/);
    assert.match(edited ?? "", /fruit\.txt/);
    assert.match(found ?? "", /fruit\.txt/);
    assert.match(listed ?? "", /\/workspace\/fruit\.txt/);
    assert.match(globbed ?? "", /fruit\.txt/);
    assert.equal(await tools.files.read("fruit.txt"), "pear\nplum\n");
  });
});
