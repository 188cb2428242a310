import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { InvalidArgument, NotStarted, Unavailable } from "../../src/index.js";
import { refuse, rejection, sendJSON, Server, type Handler } from "./server.js";

describe("a session", () => {
  it("is there for its key while it is suspended: its next call resumes it", { timeout: 10_000 }, async (t) => {
    const desk = { metadata: { name: "desk", uid: "u1", resourceVersion: "5" }, spec: { workspace: { size: "1Gi" } }, status: { phase: "Suspended" } };
    const server = await Server.listen(t, ({ method, url }, answer) => {
      if (method === "POST") {
        return refuse(answer, 409, "AlreadyExists");
      }
      if (url.searchParams.has("watch")) {
        return answer.writeHead(200).flushHeaders();
      }
      return sendJSON(answer, url.searchParams.has("fieldSelector") ? { metadata: { resourceVersion: "100" }, items: [desk] } : desk);
    });
    const session = await server.client().session(undefined, { key: "desk", workspace: { size: "1Gi" }, signal: AbortSignal.timeout(2_000) });
    assert.equal(session.uid, "u1");
  });

  it("says when it was created, and when it ends at the latest", async (t) => {
    const server = await Server.listen(t, (_, answer) => {
      const metadata = { name: "desk", uid: "u1", creationTimestamp: "2026-01-01T00:00:00Z" };
      sendJSON(answer, { metadata, spec: { maxLifetimeSeconds: 60 } });
    });
    const { created, expires } = await server.client().connect("desk");
    assert.deepEqual([created, expires], [new Date("2026-01-01T00:00:00Z"), new Date("2026-01-01T00:01:00Z")]);
  });

  it("leaves a later session of the same name alone when it is ended", async (t) => {
    let uid = "u1";
    const server = await Server.listen(t, ({ method, body }, answer) => {
      const { metadata } = JSON.parse(body || "{}") as { metadata?: { uid?: string } };
      return method === "PATCH" && metadata?.uid !== undefined && metadata.uid !== uid
        ? refuse(answer, 409, "Conflict")
        : sendJSON(answer, { metadata: { name: "desk", uid }, spec: {} });
    });
    const client = server.client();
    await (await client.connect("desk")).end();
    const old = await client.connect("desk");
    uid = "u2";
    await old.end();
    const sent = server.received.filter((request) => request.method === "PATCH").map((request) => JSON.parse(request.body) as object);
    assert.deepEqual(sent, [1, 2].map(() => ({ metadata: { uid: "u1" }, spec: { end: true } })));
  });
});

describe("a session that isn't ready in time", () => {
  // A server that makes a session, which stays as it is.
  function opening(status: object): Handler {
    let made: { metadata: object; spec: object } | undefined;
    return ({ method, url, body }, answer) => {
      if (url.searchParams.has("watch")) {
        return answer.writeHead(200).flushHeaders();
      }
      if (method === "POST") {
        made = JSON.parse(body) as { metadata: object; spec: object };
      }
      const object = { ...made, metadata: { ...made?.metadata, uid: "u1" }, status };
      return sendJSON(answer, url.searchParams.has("fieldSelector") ? { metadata: { resourceVersion: "1" }, items: [object] } : object);
    };
  }

  it("says why, and is ended", async (t) => {
    const server = await Server.listen(t, opening({ phase: "Pending", reason: "TooManySessions", message: "the environment has 2 of 2" }));
    const error = await rejection(server.client().session("repo", { wait: 0.1 }));
    assert.ok(error instanceof NotStarted, String(error));
    assert.deepEqual([error.reason, error.retrySafe], ["TooManySessions", true]);
    assert.match(error.message, /isn't ready after 0.1 s: the environment has 2 of 2/);
    assert.equal(server.count("PATCH", /./), 1);
  });

  it("stays for the next attempt when it has a key", async (t) => {
    const server = await Server.listen(t, opening({}));
    const error = await rejection(server.client().session("repo", { wait: 0.1, key: "desk" }));
    assert.ok(error instanceof NotStarted && /see that it runs/.test(error.message), String(error));
    assert.equal(server.count("PATCH", /./), 0);
    for (const wait of [0, -1, Number.NaN, Number.POSITIVE_INFINITY]) {
      assert.ok((await rejection(server.client().session("repo", { wait }))) instanceof InvalidArgument);
    }
  });

  it("is ended when it can't be awaited, unless it has a key", async (t) => {
    const open = opening({});
    const server = await Server.listen(t, (request, answer) =>
      request.method === "GET" ? refuse(answer, 503, "ServiceUnavailable") : open(request, answer),
    );
    for (const options of [{}, { key: "desk" }]) {
      const error = await rejection(server.client({ patience: 0 }).session("repo", options));
      assert.ok(error instanceof Unavailable, String(error));
      assert.equal(server.count("PATCH", /./), 1);
    }
  });

  it("has the labels and annotations that it was given", async (t) => {
    const server = await Server.listen(t, opening({ phase: "Ready" }));
    await server.client().session("repo", { labels: { conversation: "c-1" }, annotations: { why: "a question" } });
    const made = JSON.parse(server.received.find(({ method }) => method === "POST")?.body ?? "") as { metadata: object };
    assert.partialDeepStrictEqual(made.metadata, { labels: { conversation: "c-1" }, annotations: { why: "a question" } });
  });
});
