import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import type http from "node:http";
import { describe, it, type TestContext } from "node:test";
import {
  Cancelled,
  Conflict,
  Denied,
  FileFailed,
  Forbidden,
  InvalidArgument,
  NonZeroExit,
  NotFound,
  OutputNotKept,
  Unauthenticated,
  Unavailable,
  type Session,
  type ToolcallError,
} from "../../src/index.js";
import { configFor, hangUp, refuse, rejection, sendJSON, Server, type Handler, type Received } from "./server.js";

type Answer = http.ServerResponse;

const DESK = { metadata: { name: "desk", uid: "s1" }, spec: {}, status: { phase: "Ready" } };

/** A server with a session and one call at a time, which is created and stays as it is, unless a handler takes the request. */
function cluster(take: (request: Received, answer: Answer, call: { object: object | undefined }) => boolean): Handler {
  const call: { object: object | undefined } = { object: undefined };
  return (request, answer) => {
    if (take(request, answer, call)) {
      return undefined;
    }
    if (request.url.pathname.endsWith("/toolsessions/desk")) {
      return sendJSON(answer, DESK);
    }
    if (request.url.searchParams.get("watch")) {
      return answer.writeHead(200).flushHeaders();
    }
    if (request.method === "POST") {
      const { metadata, spec } = JSON.parse(request.body) as { metadata: object; spec: object };
      call.object ??= { metadata: { ...metadata, uid: "u1", resourceVersion: "5" }, spec };
    }
    if (request.url.searchParams.has("fieldSelector")) {
      return sendJSON(answer, { metadata: { resourceVersion: "100" }, items: call.object ? [call.object] : [] });
    }
    return call.object ? sendJSON(answer, call.object) : refuse(answer, 404, "NotFound");
  };
}

const nothing = (): boolean => false;
const stdout = { bytes: 6, truncated: true, invalidUTF8: false };
const ended = (status: object) => (request: Received, _answer: Answer, call: { object: object | undefined }): boolean => {
  if (request.method === "POST") {
    const { metadata, spec } = JSON.parse(request.body) as { metadata: object; spec: object };
    const conditions = [{ type: "Finished", status: "True" }];
    call.object = { metadata: { ...metadata, uid: "u1" }, spec, status: { startTime: "now", conditions, ...status } };
  }
  return false;
};
const succeeded = { phase: "Succeeded", reason: "Completed", exitCode: 0, streams: { stdout, stderr: { ...stdout, bytes: 0 } } };

describe("a call that is given up", () => {
  it("is cancelled whatever the reason of the abort", async (t) => {
    const server = await Server.listen(t, cluster(nothing));
    const stop = new AbortController();
    const reason = new InvalidArgument("another call failed", { retrySafe: true, call: "other" });
    const running = rejection(server.client().run("sleep 60", { key: "mine", signal: stop.signal }));
    while (server.count("POST", /toolcalls$/) === 0) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    stop.abort(reason);
    const error = await running;
    assert.ok(error instanceof Cancelled, String(error));
    assert.deepEqual([error.call, error.retrySafe, error.cause], ["mine", false, reason]);
    assert.equal(server.count("PATCH", /toolcalls\/mine$/), 1);
  });
});

describe("a call whose output isn't taken", () => {
  it("is given up when its signal is aborted, also after its end", { timeout: 10_000 }, async (t) => {
    const text = { ...succeeded, stdout: "abcdef", streams: { stdout: { ...stdout, truncated: false }, stderr: { ...stdout, bytes: 0 } } };
    const server = await Server.listen(t, cluster(ended(text)));
    const { commands } = await server.client().connect("desk");
    const stop = new AbortController();
    const onStdout = (): Promise<void> => {
      setTimeout(() => stop.abort(), 20);
      return new Promise(() => {});
    };
    const { signal } = stop;
    assert.ok((await rejection(commands.run("printf abcdef", { onStdout, signal }))) instanceof Cancelled);
    const handle = await commands.run("printf abcdef", { onStdout, background: true });
    assert.equal(await rejection(handle.wait({ signal })), signal.reason);
  });
});

describe("credentials that expire while a call runs", () => {
  it("say nothing of whether its command started", async (t) => {
    for (const [isProgramGone, Class] of [[false, Unauthenticated], [true, InvalidArgument]] as const) {
      const kubeConfig = configFor("http://none");
      const server = await Server.listen(
        t,
        cluster(({ method, url }, answer) => {
          const isWatch = url.searchParams.has("watch");
          if (isWatch) {
            // The watch breaks off once the call was created, and isn't taken again.
            void (server.count("POST", /toolcalls$/) > 0 ? refuse(answer, 401, "Unauthorized") : setTimeout(() => hangUp(answer), 50));
          }
          if (method === "POST" && isProgramGone) {
            t.mock.method(kubeConfig, "applyToHTTPSOptions", () => Promise.reject(new Error("no program")));
          }
          return isWatch;
        }),
      );
      Object.assign(kubeConfig.clusters[0] ?? {}, { server: server.address });
      const error = await rejection(server.client({ kubeConfig }).run("sleep 60"));
      assert.ok(error instanceof Class, String(error));
      assert.equal(error.retrySafe, false);
    }
  });
});

describe("a call that can't be asked to stop", () => {
  it("is told apart by the reason", { timeout: 10_000 }, async (t) => {
    const server = await Server.listen(
      t,
      cluster((request, answer) => {
        if (request.method === "PATCH") {
          refuse(answer, 503, "ServiceUnavailable");
        }
        return request.method === "PATCH";
      }),
    );
    const client = server.client({ patience: 1 });
    const error = await rejection(client.run("sleep 60", { key: "mine", signal: AbortSignal.timeout(100) }));
    assert.ok(error instanceof Cancelled, String(error));
    assert.deepEqual([error.reason, error.call], ["CancelFailed", "mine"]);
  });
});

describe("lines of a file", () => {
  it("are read for a model, which is told why there are none", async (t) => {
    const file = (status: object, bytes: string): object => ({ ...succeeded, stdout: bytes, ...status });
    const note = "a is a binary file";
    for (const [status, lines] of [
      [file({ output: note, file: { binary: true, nextOffset: 9 } }, "\ufffdPNG\0"), { text: "", note, binary: true }],
      [file({ output: "a is empty" }, ""), { text: "", note: "a is empty", binary: false }],
      [file({ output: "one" }, "one\n"), { text: "one\n", binary: false }],
    ] as const) {
      const server = await Server.listen(t, cluster(ended(status)));
      const { files } = await server.client().connect("desk");
      assert.deepEqual(await files.readLines("a", { limit: 10 }), lines);
    }
  });

  it("aren't written with what isn't UTF-8", async (t) => {
    const server = await Server.listen(t, cluster(nothing));
    const { files } = await server.client().connect("desk");
    assert.ok((await rejection(files.write("a", "\ud800"))) instanceof InvalidArgument);
    assert.equal(server.count("POST", /./), 0);
  });

  it("don't pass for all that was asked for", async (t) => {
    const truncated = { ...succeeded, stdout: "one\n", file: { truncated: true } };
    const tooLong = { phase: "Failed", reason: "FileTooLarge", message: "line 2 is too long" };
    for (const [first, second, note] of [
      [truncated, undefined, /^only a part of a could be read by lines/],
      [{ ...truncated, file: { truncated: true, nextOffset: 2, lines: 1 } }, tooLong, /^line 2 is too long$/],
    ] as const) {
      const server = await Server.listen(
        t,
        cluster((request, answer, call) => {
          const isFirst = !request.body.includes('"offset":2');
          return ended(isFirst ? first : (second ?? first))(request, answer, call);
        }),
      );
      const { files } = await server.client().connect("desk");
      const { text, note: said, binary } = await files.readLines("a", { limit: 10 });
      assert.deepEqual([text, binary], ["one\n", false]);
      assert.match(said ?? "", note);
      assert.ok((await rejection(files.read("a", { limit: 10 }))) instanceof FileFailed);
    }
  });
});

describe("the lines of a background call", () => {
  // Bytes 4 to 14 aren't kept, and those from 20 on are written while it is read.
  const data = Buffer.concat([Buffer.from("one\n"), Buffer.alloc(10, "."), Buffer.from("café\r\nno end")]);

  it("come one by one, each when it is complete", async (t) => {
    let length = 20;
    const server = await Server.listen(
      t,
      cluster(({ url }, answer) => {
        const at = Number(url.searchParams.get("offset"));
        if (!url.pathname.endsWith("/log")) {
          return false;
        }
        if (at >= 4 && at < 14) {
          sendJSON(answer, { reason: "OutputNotKept", details: { causes: [{ reason: "NextOffset", message: "14" }] } }, 410);
          return true;
        }
        length = at >= length ? data.length : length;
        const isComplete = length === data.length;
        answer.writeHead(200, { "toolcall-offset": at, "toolcall-bytes": data.length, "toolcall-complete": String(isComplete) });
        answer.end(data.subarray(at, at < 4 ? 4 : length));
        return true;
      }),
    );
    const session = await server.client().connect("desk");
    const handle = await session.commands.run("serve", { background: true });
    const lines: string[] = [];
    for await (const line of handle.lines()) {
      lines.push(line);
    }
    assert.deepEqual(lines, ["one", "[10 bytes were not kept]", "café", "no end"]);
  });

  it("are an error when nothing ran", async (t) => {
    const server = await Server.listen(
      t,
      cluster((request, answer, call) => {
        if (request.url.pathname.endsWith("/log")) {
          answer.writeHead(200, { "toolcall-offset": 0, "toolcall-bytes": 0, "toolcall-complete": "true" }).end();
          return true;
        }
        return ended({ phase: "Denied", reason: "BinaryNotAllowed", message: "no" })(request, answer, call);
      }),
    );
    const handle = await (await server.client().connect("desk")).commands.run("serve", { background: true, labels: { conversation: "c-1" } });
    assert.ok((await rejection(handle.lines().next())) instanceof Denied);
    const made = JSON.parse(server.received.find(({ method }) => method === "POST")?.body ?? "") as { metadata: object };
    assert.partialDeepStrictEqual(made.metadata, { labels: { conversation: "c-1" } });
  });
});

describe("a background call", () => {
  it("is cancelled when its signal is aborted later", { timeout: 10_000 }, async (t) => {
    const server = await Server.listen(t, cluster(nothing));
    const stop = new AbortController();
    const session = await server.client().connect("desk");
    await session.commands.run("sleep 60", { key: "mine", background: true, signal: stop.signal });
    assert.equal(server.count("PATCH", /toolcalls\/mine$/), 0);
    stop.abort();
    while (server.count("PATCH", /toolcalls\/mine$/) === 0) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    assert.deepEqual(JSON.parse(server.received.at(-1)?.body ?? ""), { metadata: { uid: "u1" }, spec: { cancel: true } });
  });

  it("throws the very reason of an abort, whatever is waited for", async (t) => {
    const server = await Server.listen(t, cluster(nothing));
    const { commands } = await server.client().connect("desk");
    const handle = await commands.run("sleep 60", { key: "mine", background: true });
    const reason = new InvalidArgument("another call failed");
    const signal = AbortSignal.abort(reason);
    for (const [name, work] of Object.entries({
      connect: () => commands.connect("mine", { signal }),
      read: () => handle.read({ signal }),
      write: () => handle.write("a", { signal }),
      wait: () => handle.wait({ signal }),
      cancel: () => handle.cancel({ signal }),
    })) {
      assert.equal(await rejection(work()), reason, name);
    }
  });

  it("is one of a session", async (t) => {
    const server = await Server.listen(t, cluster(nothing));
    const client = server.client();
    const error = (await rejection(client.run("sleep 60", { background: true } as object))) as ToolcallError;
    assert.ok(error instanceof InvalidArgument && error.retrySafe, String(error));
    assert.equal(server.count("POST", /toolcalls$/), 0);
    const commands = (await client.connect("desk")).commands;
    await commands.run("sleep 60", { background: true, key: "server" });
    assert.equal((await commands.connect("server")).uid, "u1");
  });

  it("is written to once its session was resumed", { timeout: 10_000 }, async (t) => {
    let refusals: string[] = [];
    const server = await Server.listen(
      t,
      cluster((request, answer) => {
        const isInput = request.url.pathname.endsWith("/proxy/input");
        const kind = isInput ? refusals.shift() : undefined;
        if (kind !== undefined) {
          sendJSON(answer, { code: 409, reason: "Conflict", message: "no", details: { kind } }, 409);
        } else if (isInput) {
          answer.writeHead(200, { "toolcall-input-offset": "0" }).end();
        }
        return isInput;
      }),
    );
    const { commands } = await server.client().connect("desk");
    const started = await commands.run("cat", { background: true, key: "cat" });
    for (const handle of [started, await commands.connect("cat")]) {
      refusals = ["toolsessions", "toolsessions"];
      await handle.write("a");
      assert.deepEqual(refusals, []);
    }
    assert.ok((await rejection(started.write("\ud800"))) instanceof InvalidArgument);
    // A call that has ended isn't waited for.
    refusals = ["toolcalls", "none"];
    assert.ok((await rejection(started.write("a"))) instanceof Conflict);
    assert.deepEqual(refusals, ["none"]);
  });

  it("isn't what connect takes another call for", async (t) => {
    const server = await Server.listen(t, cluster(ended(succeeded)));
    const client = server.client();
    await client.run("true", { key: "waited" });
    assert.ok((await rejection((await client.connect("desk")).commands.connect("waited"))) instanceof InvalidArgument);
  });

  it("has the exit codes checked that its start asked to check", async (t) => {
    const failed = { phase: "Failed", reason: "NonZeroExit", exitCode: 3, streams: { stdout, stderr: stdout } };
    const server = await Server.listen(t, cluster(ended(failed)));
    const { commands } = await server.client().connect("desk");
    const checked = await commands.run("exit 3", { background: true, check: true });
    assert.ok((await rejection(checked.wait())) instanceof NonZeroExit);
    assert.equal((await (await commands.connect(checked.call)).wait()).exitCode, 3);
  });
});

describe("a call that is created", () => {
  it("is found when its answer was lost and the request is refused then", async (t) => {
    let attempts = 0;
    const server = await Server.listen(
      t,
      cluster((request, answer, call) => {
        if (request.method !== "POST") {
          return false;
        }
        if (++attempts === 1) {
          const { metadata, spec } = JSON.parse(request.body) as { metadata: object; spec: object };
          call.object = { metadata: { ...metadata, uid: "u1" }, spec };
          hangUp(answer);
        } else {
          refuse(answer, 403, "Forbidden", "exceeded quota");
        }
        return true;
      }),
    );
    const session = await server.client().connect("desk");
    const handle = await session.commands.run("sleep 60", { background: true });
    assert.match(handle.call, /^call-/);
    assert.equal(attempts, 2);
  });

  it("isn't sent again when the watch has seen its end, although it is gone", async (t) => {
    let attempts = 0;
    let tell: ((event: object) => void) | undefined;
    const server = await Server.listen(
      t,
      cluster((request, answer) => {
        if (request.url.searchParams.get("watch")) {
          answer.writeHead(200).flushHeaders();
          tell = (event) => answer.write(JSON.stringify(event) + "\n");
          return true;
        }
        if (request.method === "POST" && /toolcalls$/.test(request.url.pathname)) {
          attempts++;
          const { metadata, spec } = JSON.parse(request.body) as { metadata: object; spec: object };
          const conditions = [{ type: "Finished", status: "True" }];
          const object = { metadata: { ...metadata, uid: "u1", resourceVersion: "7" }, spec, status: { ...succeeded, startTime: "now", conditions } };
          // The first answer comes too late.
          tell?.({ type: "DELETED", object });
          setTimeout(() => hangUp(answer), 50);
          return true;
        }
        return false;
      }),
    );
    const result = await server.client().run("true", { key: "mine" });
    assert.deepEqual([result.exitCode, attempts], [0, 1]);
  });

  it("isn't sent again a minute after a request that may have arrived", async (t) => {
    let attempts = 0;
    const server = await Server.listen(
      t,
      cluster((request, answer) => {
        const isCreate = request.method === "POST" && /toolcalls$/.test(request.url.pathname);
        if (isCreate && ++attempts === 1) {
          const now = Date.now();
          t.mock.method(Date, "now", () => now + 60_000);
          hangUp(answer);
        }
        return isCreate;
      }),
    );
    const error = await rejection(server.client().run("true", { key: "mine" }));
    assert.ok(error instanceof Unavailable, String(error));
    assert.match(error.message, /whether it ran isn't known/);
    assert.deepEqual([error.retrySafe, error.call, attempts], [false, "mine", 1]);
  });

  it("may be there when an answer was lost, and certainly isn't when every attempt was refused", async (t) => {
    for (const [losses, retrySafe] of [[0, true], [1, false]] as const) {
      let attempts = 0;
      const server = await Server.listen(
        t,
        cluster((request, answer) => {
          if (request.method === "POST") {
            void (attempts++ < losses ? hangUp(answer) : refuse(answer, 403, "Forbidden"));
          }
          return request.method === "POST";
        }),
      );
      const error = await rejection(server.client().run("true", { key: "mine" }));
      assert.ok(error instanceof Forbidden, String(error));
      assert.deepEqual([error.retrySafe, error.call], [retrySafe, "mine"]);
    }
  });

  it("is sent again after a conflict with other requests, and when what had its name has gone", async (t) => {
    for (const reason of ["Conflict", "AlreadyExists"]) {
      let attempts = 0;
      const server = await Server.listen(
        t,
        cluster((request, answer) => {
          const isFirst = request.method === "POST" && attempts++ === 0;
          if (isFirst) {
            refuse(answer, 409, reason);
          }
          return isFirst;
        }),
      );
      const session = await server.client().connect("desk");
      const handle = await session.commands.run("true", { key: "mine", background: true });
      assert.deepEqual([handle.call, attempts], ["mine", 2]);
    }
  });

  it("is a conflict when others conflict with it for as long as patience", async (t) => {
    const server = await Server.listen(
      t,
      cluster((request, answer) => {
        if (request.method === "POST") {
          refuse(answer, 409, "Conflict");
        }
        return request.method === "POST";
      }),
    );
    const error = await rejection(server.client({ patience: 1 }).run("true", { key: "mine" }));
    assert.ok(error instanceof Conflict, String(error));
    assert.deepEqual([error.reason, error.retrySafe, error.call], ["Conflict", true, "mine"]);
  });

  it("isn't sent again when its answer was lost and the call has gone", async (t) => {
    let attempts = 0;
    const server = await Server.listen(
      t,
      cluster((request, answer) => {
        if (request.method === "POST") {
          void (attempts++ === 0 ? hangUp(answer) : refuse(answer, 409, "AlreadyExists"));
        }
        return request.method === "POST";
      }),
    );
    const error = await rejection(server.client().run("true", { key: "mine" }));
    assert.ok(error instanceof NotFound, String(error));
    assert.deepEqual([error.reason, error.retrySafe, attempts], ["Deleted", false, 2]);
  });
});

describe("a client that is closed", () => {
  it("tells everybody who waits or follows", { timeout: 10_000 }, async (t) => {
    const follows = cluster((request, answer) => {
      const isLog = request.url.pathname.endsWith("/log");
      if (request.url.searchParams.has("follow")) {
        answer.writeHead(200).flushHeaders();
      } else if (isLog) {
        answer.end();
      }
      return isLog;
    });
    const server = await Server.listen(t, follows);
    const client = server.client();
    const session = await client.connect("desk");
    const handle = await session.commands.run("sleep 60", { background: true, key: "server" });
    const spec = { key: "server", background: true } as const;
    const waiting = [
      client.run("sleep 60", { key: "other" }),
      session.commands.run("sleep 60", { ...spec, onStdout: () => {} }).then((followed) => followed.wait()),
      handle.wait(),
      handle.read({ waitFor: 60 }),
    ].map(rejection);
    while (server.count("GET", /watch=true/) < 2 || server.count("GET", /follow=true/) < 2) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    client.close();
    for (const error of [...(await Promise.all(waiting)), await rejection(client.calls().next())]) {
      assert.ok(error instanceof Unavailable, String(error));
      assert.equal(error.reason, "ClientClosed");
    }
  });
});

describe("calls by name", () => {
  it("are stopped, also where they have gone", async (t) => {
    const server = await Server.listen(t, cluster(nothing));
    await server.client().cancel("gone");
    assert.deepEqual(server.received.map(({ method, url, body }) => [method, url.pathname.split("/").at(-1), body]), [
      ["PATCH", "gone", JSON.stringify({ spec: { cancel: true } })],
    ]);
  });

  it("are listed page by page, each page when it is asked for", async (t) => {
    const call = (name: string): object => ({ metadata: { name, creationTimestamp: "2026-01-02T03:04:05Z" }, spec: { sessionRef: { name: "desk" } } });
    const server = await Server.listen(t, ({ url }, answer) =>
      url.searchParams.get("continue") === "more"
        ? sendJSON(answer, { metadata: {}, items: [call("c")] })
        : sendJSON(answer, { metadata: { continue: "more" }, items: [call("a"), call("b")] }),
    );
    const client = server.client();
    const names: string[] = [];
    for await (const { name, session, phase, created } of client.calls({ session: "desk", phase: "Running", page: 2 })) {
      assert.deepEqual([session, phase, created.toISOString()], ["desk", "Pending", "2026-01-02T03:04:05.000Z"]);
      names.push(`${name} ${server.received.length}`);
    }
    assert.deepEqual(names, ["a 1", "b 1", "c 2"]);
    const { searchParams } = server.received[0]?.url ?? new URL("http://none");
    assert.deepEqual([searchParams.get("limit"), searchParams.get("fieldSelector")], ["2", "status.phase=Running,spec.sessionRef.name=desk"]);
    for await (const session of client.sessions({ phase: "Ready" })) {
      assert.equal(session.name, "a");
      break;
    }
    assert.equal(server.received.at(-1)?.url.searchParams.get("fieldSelector"), "status.phase=Ready");
    assert.throws(() => client.calls({ page: 0 }), InvalidArgument);
  });

  it("are listed to the end, also when that takes too long", async (t) => {
    const call = (name: string): object => ({ metadata: { name }, spec: {} });
    const server = await Server.listen(t, ({ url }, answer) => {
      const next = url.searchParams.get("continue");
      if (next === "old") {
        const expired = { kind: "Status", code: 410, reason: "Expired", message: "too old", metadata: { continue: "new" } };
        return sendJSON(answer, expired, 410);
      }
      return sendJSON(answer, { metadata: next ? {} : { continue: "old" }, items: [call(next ?? "a")] });
    });
    const names: string[] = [];
    for await (const { name } of server.client().calls()) {
      names.push(name);
    }
    assert.deepEqual(names, ["a", "new"]);
  });
});

describe("a file of a session that is suspended", () => {
  const large = "text".repeat(200_000);

  // A session that takes files once a call has ended so.
  async function suspended(t: TestContext, cwd: string | undefined, phase: string, reason: string): Promise<[Session, () => unknown[]]> {
    const actions: unknown[] = [];
    const end = ended({ phase, reason, message: "no" });
    const take = (request: Received, answer: Answer, call: { object: object | undefined }): boolean => {
      if (request.url.pathname.endsWith("/proxy/files")) {
        const etag = `"${createHash("sha256").update(large).digest("hex")}"`;
        void (actions.length > 0 ? answer.writeHead(201, { etag }).end() : refuse(answer, 409, "Conflict"));
        return true;
      }
      if (request.method === "POST") {
        actions.push((JSON.parse(request.body) as { spec: { file: unknown } }).spec.file);
      }
      return end(request, answer, call);
    };
    const server = await Server.listen(t, cluster(take));
    return [await server.client().connect("desk", cwd === undefined ? {} : { cwd }), () => actions];
  }

  it("is written once a call has resumed it, whatever its directory", async (t) => {
    for (const [cwd, path, reason] of [
      ["/not/there/yet", "/not/there/yet", "FileNotFound"],
      ["/a/file", "/a/file", "NotDirectory"],
      ["/root", "/root", "PathNotAllowed"],
      [undefined, ".", "WorkingDirNotFound"],
    ] as const) {
      const [session, actions] = await suspended(t, cwd, "Failed", reason);
      await session.files.write("a", large);
      assert.deepEqual(actions(), [{ operation: "Stat", path }], reason);
    }
  });

  it("isn't where no call resumes it", async (t) => {
    for (const [phase, reason, Class] of [
      ["Denied", "DeniedByRule", Denied],
      ["Failed", "EnvironmentNotFound", NotFound],
    ] as const) {
      const [session] = await suspended(t, "/workspace", phase, reason);
      assert.ok((await rejection(session.files.write("a", large))) instanceof Class, reason);
    }
  });
});

describe("what a call wrote", () => {
  it("is read by its result, its handle or its name", async (t) => {
    const end = ended(succeeded);
    const server = await Server.listen(
      t,
      cluster((request, answer, call) => {
        const isLog = request.url.pathname.endsWith("/log");
        if (isLog) {
          answer.writeHead(200, { "toolcall-bytes": "6", "toolcall-complete": "true" }).end("abcdef");
        }
        return isLog || end(request, answer, call);
      }),
    );
    const client = server.client();
    const { commands } = await client.connect("desk");
    const handle = await commands.run("printf abcdef", { background: true });
    for (const [read, uid] of [
      [client.output(await handle.wait()), "u1"],
      [commands.output(handle, { stream: "stderr" }), "u1"],
      [client.artifact(handle, "a.txt"), "u1"],
      [commands.artifact("some-call", "a.txt"), null],
    ] as const) {
      assert.equal((await read).toString(), "abcdef");
      assert.equal(server.received.filter(({ url }) => url.pathname.endsWith("/log")).at(-1)?.url.searchParams.get("uid"), uid);
    }
  });

  it("isn't asked for without end where each answer breaks off", { timeout: 10_000 }, async (t) => {
    const server = await Server.listen(t, (_request, answer) => {
      answer.writeHead(200, { "content-length": "6", "toolcall-bytes": "6", "toolcall-complete": "true" }).flushHeaders();
      setTimeout(() => hangUp(answer), 10);
    });
    const client = server.client({ patience: 1 });
    for (const error of await Promise.all([client.output("some-call"), client.artifact("some-call", "a.txt")].map(rejection))) {
      assert.ok(error instanceof Unavailable, String(error));
    }
  });

  it("is read on at the end where reading it failed before", async (t) => {
    let follows = 0;
    const end = ended(succeeded);
    const take = (request: Received, answer: Answer, call: { object: object | undefined }): boolean => {
      const isLog = request.url.pathname.endsWith("/log");
      if (isLog && ++follows === 2) {
        refuse(answer, 404, "NotFound");
      } else if (isLog) {
        answer.end(follows === 1 ? "abc" : "abcdef".slice(Number(request.url.searchParams.get("offset"))));
      }
      return isLog || end(request, answer, call);
    };
    const server = await Server.listen(t, cluster(take));
    let live = "";
    const result = await server.client().run("printf abcdef", { onStdout: (text) => (live += text) });
    assert.deepEqual([live, result.phase], ["abcdef", "Succeeded"]);
  });

  it("doesn't hide the result where it can't be read", async (t) => {
    for (const [status, name] of [[succeeded, "NotFound"], [{ ...succeeded, phase: "Failed", reason: "TimedOut" }, "TimedOut"]] as const) {
      const end = ended(status);
      const server = await Server.listen(
        t,
        cluster((request, answer, call) => {
          const isLog = request.url.pathname.endsWith("/log");
          if (isLog) {
            refuse(answer, 404, "NotFound");
          }
          return isLog || end(request, answer, call);
        }),
      );
      const error = (await rejection(server.client().run("printf abcdef", { onStdout: () => {} }))) as ToolcallError;
      assert.equal(error.name, name);
      assert.equal(error.result?.phase, status.phase);
    }
  });

  it("needs no callback: null is none", async (t) => {
    const server = await Server.listen(t, cluster(ended(succeeded)));
    const { commands } = await server.client().connect("desk");
    const none = { onStdout: null, onStderr: null } as object;
    assert.equal((await commands.run("printf abcdef", none)).phase, "Succeeded");
    assert.equal((await (await commands.run("printf abcdef", { ...none, background: true })).wait()).phase, "Succeeded");
    assert.equal(server.count("GET", /log/), 0);
  });

  it("makes run throw what a callback throws, also at the end", async (t) => {
    const text = { ...succeeded, stdout: "abcdef", streams: { stdout: { ...stdout, truncated: false }, stderr: { ...stdout, bytes: 0 } } };
    const server = await Server.listen(t, cluster(ended(text)));
    const thrown = new Error("enough");
    const failing = (): never => {
      throw thrown;
    };
    assert.equal(await rejection(server.client().run("printf abcdef", { onStdout: failing })), thrown);
  });
});

describe("a cluster that doesn't fill in who creates a call", () => {
  const message = 'toolcalls.toolcall.dev "x" is forbidden: denied request: spec.requestedBy must be the user of the request. No';

  /** Takes calls of the user alone, and says who that is as `review` does. */
  function asking(user: () => object, review: (answer: Answer) => void): Handler {
    const end = ended(succeeded);
    return cluster((request, answer, call) => {
      if (request.url.pathname.endsWith("/selfsubjectreviews")) {
        review(answer);
        return true;
      }
      const isCreate = request.method === "POST" && request.url.pathname.endsWith("/toolcalls");
      const sent = isCreate ? (JSON.parse(request.body) as { spec: { requestedBy?: object } }).spec.requestedBy : undefined;
      if (isCreate && JSON.stringify(sent) !== JSON.stringify(user())) {
        refuse(answer, 403, "Forbidden", message);
        return true;
      }
      return end(request, answer, call);
    });
  }
  const creates = (server: Server): number[] => [server.count("POST", /selfsubjectreviews$/), server.count("POST", /toolcalls$/)];

  it("is told, and asked for it again when the credentials have changed", async (t) => {
    let user = { username: "me", groups: ["b", "a"], extra: { credential: ["1"] } };
    const server = await Server.listen(t, asking(() => user, (answer) => sendJSON(answer, { status: { userInfo: user } }, 201)));
    const client = server.client();
    await client.run("true");
    assert.deepEqual(creates(server), [1, 2]);
    user = { ...user, extra: { credential: ["2"] } };
    await client.run("true");
    assert.deepEqual(creates(server), [2, 4]);
    await client.run("true");
    assert.deepEqual(creates(server), [2, 5]);
  });

  it("has refused the call for good when the answer isn't its user, or there is none", async (t) => {
    const answers = [
      (answer: Answer): unknown => sendJSON(answer, { status: { userInfo: { username: "other" } } }, 201),
      (answer: Answer): unknown => sendJSON(answer, { error: "no" }, 201),
      (answer: Answer): unknown => refuse(answer, 403, "Forbidden"),
    ];
    for (const [i, review] of answers.entries()) {
      const server = await Server.listen(t, asking(() => ({ username: "me" }), review));
      const error = (await rejection(server.client().run("true"))) as ToolcallError;
      assert.ok(error instanceof Forbidden && error.retrySafe && error.message.includes("spec.requestedBy"), String(error));
      assert.deepEqual(creates(server), [1, i < 2 ? 2 : 1]);
    }
  });
});

describe("output of a call", () => {
  it("is asked for with whole numbers only", async (t) => {
    const server = await Server.listen(t, cluster(nothing));
    const client = server.client();
    for (const range of [{ offset: -1 }, { offset: 0.5 }, { offset: Number.NaN }, { limit: 0 }, { limit: -1 }, { limit: 1.5 }, { limit: Number.NaN }]) {
      const error = await rejection(client.output("call", range));
      assert.ok(error instanceof InvalidArgument, `${JSON.stringify(range)}: ${String(error)}`);
    }
    assert.deepEqual(server.received, []);
  });

  it("isn't taken from another offset, or with another hash", async (t) => {
    for (const headers of [{ "toolcall-offset": "5" }, { "toolcall-sha256": "0".repeat(64) }]) {
      const server = await Server.listen(t, (_, answer) => answer.writeHead(200, { "toolcall-bytes": "1", ...headers }).end("f"));
      const error = (await rejection(server.client().output("call"))) as ToolcallError;
      assert.deepEqual([error.reason, error.call], ["UnexpectedAnswer", "call"]);
    }
  });

  it("says where it goes on behind a part that wasn't kept", async (t) => {
    const details = { causes: [{ reason: "NextOffset", message: "4096" }] };
    const server = await Server.listen(t, (_, answer) => sendJSON(answer, { reason: "OutputNotKept", message: "gone", details }, 410));
    const error = await rejection(server.client().output("call", { offset: 7 }));
    assert.ok(error instanceof OutputNotKept && error.resumeAt === 4096, String(error));
  });
});
