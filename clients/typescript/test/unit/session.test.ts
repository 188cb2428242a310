import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { refuse, sendJSON, Server } from "./server.js";

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
