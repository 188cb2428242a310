import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { NotFound } from "../../src/index.js";
import { refuse, rejection, sendJSON, Server } from "./server.js";

const CALL = { metadata: { name: "old", uid: "u1", resourceVersion: "5" }, spec: { shell: { command: "true" }, background: true } };
const FINISHED = { ...CALL, status: { phase: "Succeeded", conditions: [{ type: "Finished", status: "True" }] } };

describe("waiting for one object", () => {
  it("ends with its change when its own version is too old to watch from", { timeout: 10_000 }, async (t) => {
    const server = await Server.listen(t, ({ url }, answer) => {
      const { searchParams: query } = url;
      if (!query.has("watch")) {
        return sendJSON(answer, query.has("fieldSelector") ? { metadata: { resourceVersion: "100" }, items: [CALL] } : CALL);
      }
      return query.get("resourceVersion") === "5"
        ? refuse(answer, 410, "Expired", "too old resource version")
        : answer.end(JSON.stringify({ type: "MODIFIED", object: FINISHED }) + "\n");
    });
    const handle = await (await server.client().connect("desk")).commands.connect("old");
    assert.equal((await handle.wait({ signal: AbortSignal.timeout(2_000) })).phase, "Succeeded");
    assert.equal(server.count("GET", /watch=true/), 1);
  });

  it("pauses when a version has expired", { timeout: 10_000 }, async (t) => {
    const server = await Server.listen(t, ({ url }, answer) => {
      const { searchParams: query } = url;
      if (query.has("watch")) {
        return refuse(answer, 410, "Expired", "too old resource version");
      }
      return sendJSON(answer, query.has("fieldSelector") ? { metadata: { resourceVersion: "100" }, items: [CALL] } : CALL);
    });
    const handle = await (await server.client().connect("desk")).commands.connect("old");
    await assert.rejects(handle.wait({ signal: AbortSignal.timeout(500) }));
    assert.ok(server.count("GET", /watch=true/) <= 6, `${server.count("GET", /watch=true/)} watches`);
  });

  it("ends when the object has gone", async (t) => {
    const server = await Server.listen(t, ({ url }, answer) =>
      sendJSON(answer, url.searchParams.has("fieldSelector") ? { metadata: { resourceVersion: "100" }, items: [] } : CALL),
    );
    const error = await rejection((await (await server.client().connect("desk")).commands.connect("old")).wait());
    assert.ok(error instanceof NotFound, String(error));
    assert.deepEqual([error.reason, error.call], ["Deleted", "old"]);
  });
});
