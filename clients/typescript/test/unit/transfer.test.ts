import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { appendFile, mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { FileFailed } from "../../src/index.js";
import { hangUp, refuse, rejection, sendJSON, Server, type Handler } from "./server.js";

const SESSION = { metadata: { name: "desk", uid: "u1" }, spec: {}, status: { phase: "Ready" } };

// Serves one file, from where a request wants it, in parts that arrive one by one.
function serving(data: Buffer): Handler {
  const etag = `"${createHash("sha256").update(data).digest("hex")}"`;
  return async (request, answer) => {
    if (!request.url.pathname.endsWith("/proxy/files")) {
      return sendJSON(answer, SESSION);
    }
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
    answer.writeHead(from === 0 ? 200 : 206, { etag });
    for (let at = from; at < data.length && !answer.destroyed; at += 16_384) {
      answer.write(data.subarray(at, at + 16_384));
      await new Promise((resolve) => setImmediate(resolve));
    }
    answer.end();
  };
}

describe("a transfer", () => {
  let folder: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "toolcall-"));
  });
  after(() => rm(folder, { recursive: true }));

  it("ends when the local file can't be written, and leaves none behind", async (t) => {
    const server = await Server.listen(t, serving(randomBytes(1_000_000)));
    const program = [...process.execArgv.filter((arg) => arg.startsWith("--import")), join(import.meta.dirname, "download.js")];
    // Beyond the limit, a write fails as it does on a full disk.
    const args = ["-c", 'ulimit -f 256; exec "$0" "$@"', process.execPath, ...program, server.address, join(folder, "full")];
    const { stdout } = await promisify(execFile)("bash", args, { timeout: 30_000 });
    assert.deepEqual(JSON.parse(stdout), { code: "EFBIG" });
    assert.deepEqual(await readdir(folder), []);
  });

  it("goes on behind the last byte when the connection breaks", async (t) => {
    const data = randomBytes(1_000_000);
    let breaks = 2;
    const whole = serving(data);
    const server = await Server.listen(t, (request, answer) => {
      if (request.url.pathname.endsWith("/proxy/files") && breaks-- > 0) {
        setTimeout(() => hangUp(answer), 5);
      }
      return whole(request, answer);
    });
    const client = server.client();
    const done = await (await client.connect("desk")).files.download("/data", join(folder, "local"));
    assert.equal(done.bytes, data.length);
    assert.ok((await readFile(join(folder, "local"))).equals(data));
  });

  it("sends as many bytes of a local file as it had, and says when it became shorter", { timeout: 10_000 }, async (t) => {
    const local = join(folder, "log");
    const lengths: number[] = [];
    let meanwhile = (): Promise<void> => appendFile(local, "y".repeat(1_000));
    const server = await Server.listen(t, async (request, answer) => {
      if (!request.url.pathname.endsWith("/proxy/files")) {
        return sendJSON(answer, SESSION);
      }
      lengths.push(request.body.length);
      // The client sends the file again.
      if (lengths.length === 1) {
        await meanwhile();
        return refuse(answer, 503, "ServiceUnavailable");
      }
      return answer.writeHead(201).end();
    });
    const { files } = await server.client().connect("desk");
    await writeFile(local, "x".repeat(500_000));
    assert.equal((await files.upload(local, "/log")).bytes, 500_000);
    assert.deepEqual(lengths, [500_000, 500_000]);

    lengths.length = 0;
    meanwhile = () => truncate(local, 10);
    const error = await rejection(files.upload(local, "/log"));
    assert.ok(error instanceof FileFailed, String(error));
    assert.equal(error.reason, "FileChanged");
  });
});
