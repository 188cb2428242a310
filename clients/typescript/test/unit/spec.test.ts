import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { InvalidArgument } from "../../src/index.js";
import { commandSpec, envOf, fileSpec, joinPath, keyOf, nameFor, sameSpec, type Command, wholeSeconds } from "../../src/spec.js";

function refused(work: () => unknown, says: RegExp): void {
  assert.throws(work, (error: unknown) => error instanceof InvalidArgument && says.test(error.message));
}

describe("the spec of a call", () => {
  const session = { name: "desk", uid: "1-2-3" };

  it("has the action that the command is", () => {
    const specs: [Command, object][] = [
      ["ls | wc -l", { shell: { command: "ls | wc -l" } }],
      [{ program: "ls" }, { structured: { binary: "ls" } }],
      [{ program: "ls", args: ["-l", ""] }, { structured: { binary: "ls", args: ["-l", ""] } }],
      [{ code: "1", language: "python" }, { code: { language: "python", source: "1" } }],
      [{ code: "1", language: "python", networkAccess: true }, { code: { language: "python", source: "1", networkAccess: true } }],
      [{ tool: "bash", arguments: { command: "ls" } }, { tool: { name: "bash", arguments: { command: "ls" } } }],
      [{ tool: "bash" }, { tool: { name: "bash", arguments: {} } }],
      // The policy answers.
      ["", { shell: { command: "" } }],
      [{ program: "" }, { structured: { binary: "" } }],
      [{ code: "", language: "python" }, { code: { language: "python", source: "" } }],
    ];
    for (const [command, spec] of specs) {
      assert.deepEqual(commandSpec(command, {}, {}), spec);
    }
  });

  it("has the place and the options", () => {
    assert.deepEqual(commandSpec("x", { timeout: 5, env: { B: "", A: "1" }, cwd: "sub", stdin: "\0", collect: ["*"] }, { session, cwd: "/w" }), {
      shell: { command: "x" },
      sessionRef: session,
      workingDir: "/w/sub",
      timeoutSeconds: 5,
      env: [
        { name: "A", value: "1" },
        { name: "B", value: "" },
      ],
      stdin: "\0",
      collect: ["*"],
    });
    assert.deepEqual(commandSpec("x", {}, { environment: "tools" }), { shell: { command: "x" }, environmentRef: { name: "tools" } });
    assert.deepEqual(commandSpec("x", { networkHosts: ["a.example.com", "*.b.example.com"] }, {}), {
      shell: { command: "x" },
      network: { hosts: ["a.example.com", "*.b.example.com"] },
    });
    assert.deepEqual(commandSpec("x", { env: {}, collect: [], stdin: "" }, {}), { shell: { command: "x" } });
    assert.deepEqual(fileSpec({ operation: "Stat", path: "a" }, { session }), { file: { operation: "Stat", path: "a" }, sessionRef: session });
  });

  it("is refused with what would be right", () => {
    refused(() => commandSpec({ program: "a", code: "1", language: "python" }, {}, {}), /program and code are there/);
    refused(() => commandSpec({ program: "a", args: "-l" as unknown as string[] }, {}, {}), /args is of type string: give a list/);
    refused(() => commandSpec("a", { collect: "*.png" as unknown as string[] }, {}), /collect is of type string: give a list/);
    refused(() => commandSpec({} as Command, {}, {}), /program, code or tool/);
    refused(() => commandSpec(undefined as unknown as Command, {}, {}), /program, code or tool/);
    refused(() => commandSpec({ program: "a", args: [1 as unknown as string] }, {}, {}), /args is of type number/);
    refused(() => commandSpec("a\0b", {}, {}), /NUL/);
    refused(() => commandSpec("a", { timeout: 0.5 }, {}), /timeout is 0\.5: give a whole number of seconds, at least 1/);
    refused(() => commandSpec("a", { timeout: 0 }, {}), /at least 1/);
    refused(() => commandSpec("a", { timeout: 2 ** 31 }, {}), /timeout/);
    refused(() => commandSpec("a", { env: { "A-B": "" } }, {}), /"A-B" isn't a variable's name/);
    refused(() => commandSpec("a", { stdin: 5 as unknown as string }, {}), /stdin/);
    refused(() => commandSpec("a", { networkHosts: [] }, {}), /networkHosts is \[\]: give a list of hosts.*or leave it out/);
    refused(() => commandSpec("a", { networkHosts: [""] }, {}), /networkHosts is \[""\]/);
    refused(() => commandSpec("a", { networkHosts: "a.example.com" as unknown as string[] }, {}), /networkHosts is "a.example.com"/);
    refused(() => commandSpec("a", { networkHosts: [1 as unknown as string] }, {}), /networkHosts is of type number/);
    refused(() => envOf({ A: undefined as unknown as string }), /env\.A/);
    refused(() => fileSpec({ operation: "Read", path: "" }, {}), /path is empty/);
    assert.equal(wholeSeconds("x", 0, 0), 0);
  });
});

describe("names", () => {
  it("are keys, or new ones", () => {
    assert.equal(nameFor("step-7.a", "call"), "step-7.a");
    assert.match(nameFor(undefined, "call"), /^call-[0-9a-f]{20}$/);
    assert.notEqual(nameFor(undefined, "call"), nameFor(undefined, "call"));
    assert.equal(nameFor("a".repeat(253), "call").length, 253);
  });

  it("that the API wouldn't take are refused", () => {
    for (const key of ["", "A", "a_b", "-a", "a-", ".a", "a..b", "a b", "ä", "a".repeat(254), "a\n", 5 as unknown as string]) {
      refused(() => nameFor(key, "call"), /key .* can't be an object's name/);
    }
  });
});

describe("keys", () => {
  it("of any texts are valid, differ, and are those of the Python library", () => {
    const keys = [keyOf("thread-1", "call_1"), keyOf("é\u{1f600}", "x"), keyOf("a", "bc"), keyOf("ab", "c"), keyOf("abc"), keyOf("a", "")];
    assert.equal(new Set(keys).size, keys.length);
    for (const key of keys) {
      assert.equal(nameFor(key, "call"), key);
    }
    assert.deepEqual(keys.slice(0, 2), ["key-d81145f660644023112eb62dc8454420b3b95a21", "key-d774e92051a1ccb6585c3e1a142ca9c7c88e793c"]);
    refused(() => keyOf(), /at least one text/);
    refused(() => keyOf("\ud800"), /half of a surrogate pair/);
  });
});

describe("paths", () => {
  it("count from the session's directory", () => {
    const cases: [string | undefined, string | undefined, string | undefined][] = [
      [undefined, undefined, undefined],
      [undefined, "a", "a"],
      ["/w", undefined, "/w"],
      ["/w", "", "/w"],
      ["/w", "a", "/w/a"],
      ["/w/", "../b", "/b"],
      ["/w", "/a/../b", "/a/../b"],
      ["src", "a", "src/a"],
      ["src", "..", "."],
      ["/w", "~/a", "~/a"],
      ["/w", "~", "~"],
      ["/w", "~a", "/w/~a"],
    ];
    for (const [cwd, path, joined] of cases) {
      assert.equal(joinPath(cwd, path), joined);
    }
  });
});

describe("the comparison of specs", () => {
  const sent = { shell: { command: "a" }, env: [{ name: "A", value: "" }], timeoutSeconds: 5 };

  it("leaves out what the API server and cancelling add", () => {
    const there = { ...sent, requestedBy: { username: "me" }, cancel: true };
    assert.ok(sameSpec(sent, there));
    assert.ok(sameSpec({}, { idleTimeoutSeconds: 900, maxLifetimeSeconds: 28800, maxConcurrentCalls: 1, end: true }));
    assert.ok(sameSpec({ maxLifetimeSeconds: 28800 }, {}));
    assert.ok(sameSpec({ file: { operation: "Write", path: "a", content: "" } }, { file: { operation: "Write", path: "a", content: "" } }));
  });

  it("is with what is stored of an argument", () => {
    const tool = (args: Record<string, unknown>): object => ({ tool: { name: "a", arguments: args } });
    const bare = Object.assign(Object.create(null) as object, { x: 1 });
    const text = "\\ud800\\";
    const given = { gone: undefined, at: new Date(0), bare, list: [undefined, Number.NaN, -0], "\ud800": "\udfff\u{1f600}", text };
    const stored = { at: "1970-01-01T00:00:00.000Z", bare: { x: 1 }, list: [null, null, 0], "\ufffd": "\ufffd\u{1f600}", text };
    assert.ok(sameSpec(tool(given), tool(stored)));
    assert.equal(sameSpec(tool(given), tool({ ...stored, gone: null })), false);
  });

  it("sees every other difference", () => {
    const others = [
      { ...sent, shell: { command: "b" } },
      { ...sent, timeoutSeconds: 6 },
      { ...sent, network: { hosts: ["a.example.com"] } },
      { ...sent, env: [] },
      { ...sent, env: [{ name: "A", value: "1" }] },
      { ...sent, background: true },
      { ...sent, background: false },
      { ...sent, stdin: "" },
      { ...sent, sessionRef: { name: "desk" } },
      { shell: sent.shell, env: sent.env },
      { ...sent, stdin: "x" },
      { structured: { binary: "a" }, env: sent.env, timeoutSeconds: 5 },
    ];
    for (const other of others) {
      assert.equal(sameSpec(sent, other), false, JSON.stringify(other));
      assert.equal(sameSpec(other, sent), false, JSON.stringify(other));
    }
    const two = (args: string[]): object => ({ structured: { binary: "a", args } });
    assert.equal(sameSpec(two(["1", "2"]), two(["2", "1"])), false);
    const tool = (args: Record<string, unknown>): object => ({ tool: { name: "a", arguments: args } });
    assert.ok(sameSpec(tool({ a: { b: [1] }, c: false }), tool({ c: false, a: { b: [1] } })));
    for (const args of [{ cancel: true }, { value: "" }, { a: false }, { a: "" }]) {
      assert.equal(sameSpec(tool({}), tool(args)), false);
    }
    assert.equal(sameSpec({ maxLifetimeSeconds: 60 }, { maxLifetimeSeconds: 28800 }), false);
  });
});
