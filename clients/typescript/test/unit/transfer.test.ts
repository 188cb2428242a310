import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { appendFile, chmod, lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, symlink, truncate, writeFile } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, describe, it, type TestContext } from "node:test";
import { promisify } from "node:util";
import { FileFailed, Forbidden, InvalidArgument, NotFound, ToolcallError, type Session } from "../../src/index.js";
import { hangUp, refuse, rejection, sendJSON, Server, type Handler } from "./server.js";

const SESSION = { metadata: { name: "desk", uid: "u1" }, spec: {}, status: { phase: "Ready" } };

// Serves one file, from where a request wants it, in parts that arrive one by one. One answer has at most so many bytes.
function serving(data: Buffer, most = data.length): Handler {
  const etag = `"${createHash("sha256").update(data).digest("hex")}"`;
  return async (request, answer) => {
    if (!request.url.pathname.endsWith("/proxy/files")) {
      return sendJSON(answer, SESSION);
    }
    const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "") ?? [];
    const [from, end] = [Number(first ?? 0), Math.min(data.length, last ? Number(last) + 1 : data.length)];
    if (end - from > most) {
      return refuse(answer, 413, "FileTooLarge");
    }
    assert.equal(request.headers["if-match"], from === 0 ? undefined : etag);
    const range = { "content-range": `bytes ${from}-${end - 1}/${data.length}` };
    answer.writeHead(first === undefined ? 200 : 206, { etag, ...(first === undefined ? {} : range) });
    for (let at = from; at < end && !answer.destroyed; at += 16_384) {
      answer.write(data.subarray(at, Math.min(at + 16_384, end)));
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
    assert.deepEqual(JSON.parse(stdout), { reason: "FileTooLarge" });
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

  it("takes a file in parts that is larger than one answer may be", async (t) => {
    const data = randomBytes(1_000_000);
    const server = await Server.listen(t, serving(data, 300_000));
    const { files } = await server.client().connect("desk");
    assert.ok(data.equals(await files.read("/data", { format: "bytes" })));
    assert.equal((await files.download("/data", join(folder, "parts"))).bytes, data.length);
    assert.ok((await readFile(join(folder, "parts"))).equals(data));

    const strict = await (await Server.listen(t, serving(data, 1_000))).client().connect("desk");
    const error = await rejection(strict.files.read("/data"));
    assert.ok(error instanceof FileFailed && error.reason === "FileTooLarge", String(error));
  });

  it("isn't repeated when the file is there although the answer was a failure", async (t) => {
    const etag = `"${createHash("sha256").update("data").digest("hex")}"`;
    const local = join(folder, "once");
    await writeFile(local, "data");
    const looks: [(answer: ServerResponse) => unknown, number][] = [
      [(answer) => answer.writeHead(200, { etag }).end(), 1],
      [(answer) => refuse(answer, 404, "FileNotFound"), 2],
      [(answer) => refuse(answer, 403, "Forbidden"), 2],
    ];
    for (const [look, count] of looks) {
      let puts = 0;
      const server = await Server.listen(t, ({ method, url }, answer) => {
        if (!url.pathname.endsWith("/proxy/files")) {
          return sendJSON(answer, SESSION);
        }
        if (method === "HEAD") {
          return look(answer);
        }
        return ++puts === 1 ? refuse(answer, 503, "ServiceUnavailable") : answer.writeHead(201).end();
      });
      const { files } = await server.client().connect("desk");
      assert.equal((await files.upload(local, "/data", { ifSHA256: "" })).bytes, 4);
      assert.equal(puts, count);
    }
  });

  it("sends as many bytes of a local file as it had, and says when it became shorter", { timeout: 10_000 }, async (t) => {
    const local = join(folder, "log");
    const lengths: number[] = [];
    let meanwhile = (): Promise<void> => appendFile(local, "y".repeat(1_000));
    const server = await Server.listen(t, async (request, answer) => {
      if (!request.url.pathname.endsWith("/proxy/files")) {
        return sendJSON(answer, SESSION);
      }
      if (request.method === "HEAD") {
        return refuse(answer, 404, "FileNotFound");
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

describe("a directory", () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "toolcall-"));
  });
  afterEach(() => rm(folder, { recursive: true }));

  // A session whose files are those that a handler has.
  async function sessionOf(t: TestContext, files: Handler): Promise<Session> {
    const server = await Server.listen(t, (request, answer) =>
      request.url.pathname.endsWith("/proxy/files") ? files(request, answer) : sendJSON(answer, SESSION),
    );
    return server.client().connect("desk");
  }

  // Archives of the program that everybody has.
  async function tar(...args: string[]): Promise<Buffer> {
    return (await promisify(execFile)("tar", args, { encoding: "buffer", cwd: folder })).stdout;
  }

  it("goes up as tar reads it", async (t) => {
    const long = `${"d".repeat(90)}/${"n".repeat(90)}`;
    const name = "ü\n";
    await mkdir(join(folder, "tree", "empty"), { recursive: true });
    await mkdir(join(folder, "tree", "d".repeat(90)));
    await writeFile(join(folder, "tree", long), randomBytes(700_000));
    await writeFile(join(folder, "tree", name), "odd");
    await chmod(join(folder, "tree", name), 0o750);
    await symlink("empty", join(folder, "tree", "here"));
    let sent: Promise<unknown> = Promise.resolve();
    const { files } = await sessionOf(t, (request, answer) => {
      assert.deepEqual([request.url.searchParams.get("archive"), request.url.searchParams.get("path")], ["tar", "tree"]);
      sent = writeFile(join(folder, "sent.tar"), request.bytes);
      return answer.writeHead(200).end();
    });
    await files.uploadDir(join(folder, "tree"));
    await sent;
    await mkdir(join(folder, "copy"));
    await tar("-xf", "sent.tar", "-C", "copy");
    assert.ok((await readFile(join(folder, "copy", long))).equals(await readFile(join(folder, "tree", long))));
    assert.deepEqual([await readFile(join(folder, "copy", name), "utf8"), (await stat(join(folder, "copy", name))).mode & 0o777], ["odd", 0o750]);
    assert.deepEqual([await readlink(join(folder, "copy", "here")), await readdir(join(folder, "copy", "empty"))], ["empty", []]);
  });

  it("comes down as tar writes it, also after it broke off", async (t) => {
    await mkdir(join(folder, "tree", "d".repeat(120)), { recursive: true });
    const inside = join("d".repeat(120), "ü".repeat(60));
    await writeFile(join(folder, "tree", inside), randomBytes(700_000));
    await chmod(join(folder, "tree", inside), 0o755);
    await symlink(`${"d".repeat(120)}`, join(folder, "tree", "here"));
    const archive = await tar("-cf", "-", "--format=pax", "-C", "tree", ".");
    let breaks = 1;
    const { files } = await sessionOf(t, (_, answer) => {
      answer.writeHead(200).write(archive.subarray(0, 300_000));
      return breaks-- > 0 ? setTimeout(() => hangUp(answer), 20) : answer.end(archive.subarray(300_000));
    });
    await files.downloadDir("/workspace/tree", join(folder, "copy"));
    assert.ok((await readFile(join(folder, "copy", "here", "ü".repeat(60)))).equals(await readFile(join(folder, "tree", inside))));
    assert.equal((await lstat(join(folder, "copy", inside))).mode & 0o777, 0o755);
    const error = await rejection(files.downloadDir("/workspace/tree", join(folder, "copy")));
    assert.ok(error instanceof FileFailed && error.reason === "FileExists", String(error));
    assert.deepEqual((await readdir(folder)).sort(), ["copy", "tree"]);
  });

  it("writes nothing outside, whatever the session sends", async (t) => {
    await mkdir(join(folder, "made", "d", "e", "f"), { recursive: true });
    await mkdir(join(folder, "made", "b"));
    const at = join(folder, "made");
    await writeFile(join(at, "file"), "x");
    await symlink("..", join(at, "up"));
    await symlink("../..", join(at, "far"));
    await symlink("anything", join(at, "evil"));
    await symlink("b", join(at, "inside"));
    await symlink("/etc/passwd", join(at, "absolute"));
    await symlink("../../..", join(at, "d", "e", "f", "top"));
    await symlink("top/../outside", join(at, "d", "e", "f", "out"));
    await promisify(execFile)("mkfifo", [join(at, "fifo")]);
    await promisify(execFile)("ln", [join(at, "file"), join(at, "hard")]);
    const make = (...args: string[]): Promise<Buffer> => tar("-cPf", "-", "--format=pax", "-C", "made", ...args);
    const archives: Record<string, Buffer> = {
      "a name with ..": await make("--transform=s,file,../outside,", "file"),
      "a name with .. in between": await make("--transform=s,file,a/../../outside,", "file"),
      "an absolute name": await make(`--transform=s,file,${join(folder, "outside")},`, "file"),
      "a link to the directory above": await make("up"),
      "an absolute link": await make("absolute"),
      "a link over another link": await make("d"),
      "a named pipe": await make("fifo"),
      "a hard link": await make("file", "hard"),
      "a file below a link": await make("--transform=flags=r;s,b,up,", "up", "b", "--transform=flags=r;s,file,up/outside,", "file"),
      "a link below a link": await make("--transform=flags=r;s,evil,far/evil,", "far", "evil"),
      "a link far below a link": await make("--transform=flags=r;s,evil,./far//new/evil,", "far", "evil"),
      "a link below a link that comes later": await make("--transform=flags=r;s,evil,far/evil,", "evil", "far"),
      "a link below a link that leads to a directory": await make("--transform=flags=r;s,evil,inside/evil,", "b", "inside", "evil"),
      "no archive": Buffer.alloc(1_024, 1),
    };
    for (const [what, archive] of Object.entries(archives)) {
      const { files } = await sessionOf(t, (_, answer) => answer.writeHead(200).end(archive));
      const error = await rejection(files.downloadDir("tree", join(folder, "copy")));
      assert.ok(error instanceof Forbidden || error instanceof FileFailed, `${what}: ${String(error)}`);
      assert.deepEqual(await readdir(folder), ["made"], what);
    }
  });

  it("isn't sent with what leads out of it", async (t) => {
    const { files } = await sessionOf(t, () => assert.fail("it was sent"));
    const odd = [(path: string) => symlink("/etc/passwd", path), (path: string) => symlink("..", path), (path: string) => promisify(execFile)("mkfifo", [path])];
    for (const [number, make] of odd.entries()) {
      await mkdir(join(folder, String(number)));
      await make(join(folder, String(number), "odd"));
      const error = await rejection(files.uploadDir(join(folder, String(number))));
      assert.ok(error instanceof Forbidden && error.message.includes("odd"), String(error));
    }
  });
});

it("errors of local files are the library's own", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "toolcall-"));
  t.after(() => rm(folder, { recursive: true }));
  const server = await Server.listen(t, serving(Buffer.from("data")));
  const { files } = await server.client().connect("desk");
  await writeFile(join(folder, "file"), "x");
  await promisify(execFile)("mkfifo", [join(folder, "pipe")]);
  const cases: [() => Promise<unknown>, new (message: string) => ToolcallError, string][] = [
    [() => files.upload(join(folder, "nope")), NotFound, "FileNotFound"],
    [() => files.upload(folder), FileFailed, "IsDirectory"],
    [() => files.upload(join(folder, "pipe")), FileFailed, "FileError"],
    [() => files.uploadDir(join(folder, "file")), FileFailed, "NotDirectory"],
    [() => files.uploadDir(join(folder, "nope")), NotFound, "FileNotFound"],
    [() => files.download("a", join(folder, "nope", "a")), NotFound, "FileNotFound"],
    [() => files.download("a", folder), FileFailed, "IsDirectory"],
    [() => files.downloadDir("a", join(folder, "nope", "a")), NotFound, "FileNotFound"],
    [() => files.upload(`${folder}/a\0b`), InvalidArgument, "InvalidArgument"],
    [() => files.uploadDir(`${folder}/a\0b`), InvalidArgument, "InvalidArgument"],
    [() => files.download("a", `${folder}/a\0b`), InvalidArgument, "InvalidArgument"],
    [() => files.downloadDir("a", `${folder}/a\0b`), InvalidArgument, "InvalidArgument"],
  ];
  for (const [work, Class, reason] of cases) {
    const error = (await rejection(work())) as ToolcallError;
    assert.ok(error instanceof Class && error.message.includes(folder), String(error));
    assert.deepEqual([error.reason, error.retrySafe], [reason, true]);
  }
});
