import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as lib from "../../src/index.js";
import { lost } from "../../src/api.js";
import { ApiError, classOfEnd, ConnectionLost, invalid, publicError, Unreached } from "../../src/errors.js";
import { restInStatus } from "../../src/live.js";
import type { ToolCallStatus } from "../../src/objects.js";
import { nextKept } from "../../src/output.js";
import { errorOfEnd, Result } from "../../src/result.js";
import { pause, Retries } from "../../src/retries.js";
import { endedError } from "../../src/session.js";
import { commandSpec } from "../../src/spec.js";

function resultOf(status: ToolCallStatus): Result {
  return new Result({ metadata: { name: "a" }, spec: {}, status });
}

describe("the class of an error", () => {
  it("follows from phase and reason of the call", () => {
    for (const [phase, reason, expected] of [
      ["Succeeded", "Completed", undefined],
      ["Failed", "TimedOut", lib.TimedOut],
      ["Failed", "OOMKilled", lib.NonZeroExit],
      ["Failed", "PathNotAllowed", lib.Forbidden],
      ["Failed", "ImagePullFailed", lib.NotStarted],
      ["Failed", "SomethingNew", lib.NotStarted],
      ["Denied", "InvalidArguments", lib.Denied],
      ["Denied", "ApprovalDenied", lib.ApprovalNeeded],
      ["Denied", "ApprovalExpired", lib.ApprovalNeeded],
      ["Cancelled", "CancelRequested", lib.Cancelled],
    ] as const) {
      assert.equal(classOfEnd(phase, reason), expected, `${phase}/${reason}`);
    }
  });

  it("is that of an ended session, whatever the reason", () => {
    for (const reason of ["IdleTimeout", "PodLost"]) {
      const error = endedError({ metadata: { name: "s" }, spec: {}, status: { phase: "Ended", reason } });
      assert.deepEqual([error.name, error.reason, error.retrySafe], ["SessionEnded", reason, true]);
    }
  });

  it("follows from the answer of the API", () => {
    for (const [code, reason, expected] of [
      [400, "", "InvalidArgument"],
      [401, "", "Unauthenticated"],
      [403, "", "Forbidden"],
      [404, "", "NotFound"],
      [409, "", "Conflict"],
      [410, "", "Conflict"],
      [412, "", "FileFailed"],
      [413, "", "InvalidArgument"],
      [416, "", "InvalidArgument"],
      [418, "", "ToolcallError"],
      [422, "", "InvalidArgument"],
      [429, "", "Unavailable"],
      [501, "", "Unavailable"],
      [503, "", "Unavailable"],
      [507, "", "FileFailed"],
      [404, "NotFound", "NotFound"],
      [409, "AlreadyExists", "Conflict"],
      [409, "IsDirectory", "FileFailed"],
      [409, "WorkingDirNotFound", "NotFound"],
      [410, "OutputNotKept", "OutputNotKept"],
      [413, "FileTooLarge", "FileFailed"],
      [500, "FileError", "FileFailed"],
      [501, "NotSupported", "FileFailed"],
      [504, "TimedOut", "Unavailable"],
    ] as const) {
      const error = publicError(new ApiError(code, reason ? { reason } : {}, {})) as lib.ToolcallError;
      assert.deepEqual([error.name, error.reason, error.retrySafe], [expected, reason || `HTTP${code}`, false], `${code} ${reason}`);
    }
  });

  it("is that of a denial for a missing approval", () => {
    assert.ok(new lib.ApprovalNeeded("x") instanceof lib.Denied);
  });

  it("is that of an argument that can be corrected safely, for one that isn't valid", () => {
    const error = invalid("wrong");
    assert.ok(error instanceof lib.InvalidArgument);
    assert.deepEqual([error.reason, error.retrySafe], ["InvalidArgument", true]);
    assert.throws(() => commandSpec("a\0", {}, {}), { name: "InvalidArgument", retrySafe: true });
  });

  it("is public, with reason, code and call", () => {
    const error = publicError(new ApiError(404, { message: "no such call", reason: "NotFound" }, {}), { call: "a" });
    assert.ok(error instanceof lib.NotFound && error instanceof lib.ToolcallError && error instanceof Error);
    assert.deepEqual([error.name, error.message, error.reason, error.code, error.call, error.retrySafe], ["NotFound", "no such call", "NotFound", 404, "a", false]);
    assert.ok(publicError(new ConnectionLost("x")) instanceof lib.Unavailable);
    const other = new RangeError("x");
    assert.equal(publicError(other), other);
    const result = resultOf({ phase: "Cancelled" });
    const named = publicError(new lib.Cancelled("x", { result }), { call: "a" });
    assert.ok(named instanceof lib.Cancelled && named.call === "a" && named.result === result);
  });
});

describe("a call that ended otherwise than asked for", () => {
  it("has a result, by type", () => {
    const error: unknown = errorOfEnd(resultOf({ phase: "Failed", reason: "TimedOut", stdout: "so far" }), false);
    assert.ok(error instanceof lib.TimedOut);
    assert.equal(error.result.stdout, "so far");
    assert.ok(publicError(new ApiError(504, { reason: "TimedOut" }, {})) instanceof lib.Unavailable);
  });
});

describe("a session that can't start", () => {
  it("says what a call would", () => {
    for (const [message, kind, reason] of [
      ['EnvironmentNotFound: ExecutionEnvironment "nope" not found', "NotFound", "EnvironmentNotFound"],
      ["ImagePullFailed: there is no such image: x", "NotStarted", "ImagePullFailed"],
      ["PodLost: it is gone", "NotStarted", "PodLost"],
      ["the pod is at fault", "NotStarted", "StartFailed"],
    ] as const) {
      const error = endedError({ metadata: { name: "s" }, spec: {}, status: { phase: "Ended", reason: "StartFailed", message } });
      assert.deepEqual([error.name, error.reason, message.endsWith(error.message)], [kind, reason, true], message);
    }
  });
});

describe("requests that are sent again", () => {
  it("are sent for ten seconds to a server that never answered", () => {
    const began = 1_000;
    const unreached = new Unreached("http://server", began, new Error("x"));
    let now = began + 9_000;
    const retries = new Retries(120_000, () => now);
    assert.equal(retries.next(unreached), 50);
    now = began + 10_000;
    assert.equal(retries.next(unreached), undefined);
    assert.equal(retries.next(new ConnectionLost("x")), 200);
    const severalAddresses = Object.assign(new AggregateError([]), { code: "ECONNREFUSED" });
    assert.match(new Unreached("http://server", began, severalAddresses).message, /can't be reached: ECONNREFUSED$/);
  });

  it("are those that may succeed later", () => {
    const answer = (code: number, headers = {}): number | undefined => pause(new ApiError(code, {}, headers), 0);
    assert.equal(pause(new ConnectionLost("x"), 0), 50);
    assert.equal(pause(new ConnectionLost("x"), 20), 3_000);
    assert.equal(answer(503), 50);
    assert.equal(answer(429, { "retry-after": "2" }), 2_000);
    assert.equal(pause(new ApiError(500, { details: { retryAfterSeconds: 1 } }, {}), 0), 1_000);
    for (const code of [400, 401, 403, 404, 409, 410, 412, 413, 416, 422, 501, 507]) {
      assert.equal(answer(code), undefined, String(code));
    }
    assert.equal(pause(new Error("x"), 0), undefined);
  });

  it("are sent for so long after the first failure, and no longer", () => {
    let now = 0;
    const retries = new Retries(1_000, () => now);
    const broken = new ConnectionLost("x");
    now = 50_000;
    assert.deepEqual([retries.next(broken), retries.next(broken), retries.next(broken)], [50, 100, 200]);
    now += 900;
    assert.equal(retries.next(broken), undefined);
    retries.succeeded();
    now += 50_000;
    assert.equal(retries.next(broken), 50);
    assert.equal(new Retries(0).next(broken), undefined);
    assert.equal(retries.next(new Error("x")), undefined);
  });

  it("aren't those to a server that isn't trusted", () => {
    const error = (code: string): Error => Object.assign(new Error("x"), { code });
    assert.ok(lost(error("ECONNRESET")) instanceof ConnectionLost);
    assert.ok(lost(error("ERR_STREAM_PREMATURE_CLOSE")) instanceof ConnectionLost);
    for (const code of ["CERT_HAS_EXPIRED", "UNABLE_TO_VERIFY_LEAF_SIGNATURE"]) {
      const untrusted = publicError(lost(error(code)), { call: "a" });
      assert.ok(untrusted instanceof lib.Unavailable);
      // Requests before it may have created the call.
      assert.deepEqual([untrusted.call, untrusted.retrySafe], ["a", false]);
    }
    const aborted = error("ABORT_ERR");
    assert.equal(lost(aborted), aborted);
  });
});

describe("a result", () => {
  it("has no exit code that nobody knows", () => {
    const result = resultOf({ phase: "Failed", reason: "PodLost", message: "the pod is gone" });
    assert.equal(result.exitCode, null);
    assert.deepEqual([result.stdout, result.text, result.truncated, result.retrySafe], ["", "the pod is gone", false, false]);
    assert.ok(errorOfEnd(result, false) instanceof lib.PodLost);
    assert.equal(resultOf({ phase: "Succeeded", exitCode: 0 }).exitCode, 0);
  });

  it("is one whatever the exit code, unless that is checked", () => {
    const result = resultOf({ phase: "Failed", reason: "NonZeroExit", exitCode: 3, stderr: "first\nlast\n" });
    assert.equal(errorOfEnd(result, false), undefined);
    const error = errorOfEnd(result, true);
    assert.ok(error instanceof lib.NonZeroExit);
    assert.equal(error.message, "the command exited with code 3: last");
    assert.equal(error.result, result);
    assert.equal(errorOfEnd(resultOf({ phase: "Succeeded", reason: "Completed" }), true), undefined);
  });

  it("has the hosts that were refused", () => {
    const denied = [
      { host: "b.example.com", count: 2 },
      { host: "2001:db8::7", port: 443, count: 1 },
    ];
    const result = resultOf({ phase: "Failed", reason: "NonZeroExit", network: { mode: "Listed", denied, omittedDenied: 3 } });
    assert.deepEqual(result.deniedHosts, denied);
    assert.deepEqual(resultOf({ phase: "Succeeded", network: { mode: "Open" } }).deniedHosts, []);
    assert.deepEqual(resultOf({ phase: "Succeeded" }).deniedHosts, []);
  });

  it("is an error where nothing ran", () => {
    const denied = errorOfEnd(resultOf({ phase: "Denied", reason: "BinaryNotAllowed", message: "not listed" }), false);
    assert.deepEqual([denied?.name, denied?.message, denied?.reason, denied?.retrySafe, denied?.call], ["Denied", "not listed", "BinaryNotAllowed", true, "a"]);
    assert.equal(errorOfEnd(resultOf({ phase: "Failed", reason: "PodLost", retrySafe: false }), true)?.retrySafe, false);
  });
});

describe("what a status has of a stream", () => {
  const call = (stdout: string, described: object): Parameters<typeof restInStatus>[0] => ({
    metadata: { name: "a" },
    spec: {},
    status: { stdout, streams: { stdout: { bytes: 0, truncated: false, invalidUTF8: false, ...described }, stderr: { bytes: 0, truncated: false, invalidUTF8: false } } },
  });

  it("is all of it only when every byte is there", () => {
    assert.equal(restInStatus(call("grün", { bytes: 5 }), "stdout")?.length, 5);
    assert.equal(restInStatus(call("", { bytes: 0 }), "stdout")?.length, 0);
    assert.equal(restInStatus(call("grün", { bytes: 9, truncated: true }), "stdout"), undefined);
    assert.equal(restInStatus(call("gr\ufffdn", { bytes: 4, invalidUTF8: true }), "stdout"), undefined);
    assert.equal(restInStatus(call("[redacted]", { bytes: 4 }), "stdout"), undefined);
    assert.equal(restInStatus({ metadata: { name: "a" }, spec: {} }, "stdout"), undefined);
  });
});

describe("a part that wasn't kept", () => {
  it("ends where the answer says", () => {
    const at = (causes: object[]): number | undefined => nextKept(new ApiError(410, { details: { causes } }, {}));
    assert.equal(at([{ reason: "NextOffset", message: "4096" }]), 4096);
    assert.equal(at([{ reason: "Other", message: "1" }]), undefined);
    assert.equal(at([{ reason: "NextOffset", message: "soon" }]), undefined);
    assert.equal(at([]), undefined);
  });
});
