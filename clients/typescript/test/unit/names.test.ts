import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { it } from "node:test";
import * as lib from "../../src/index.js";
import { SCENARIOS } from "../cluster/cluster.js";

// In snake_case, as Python has them.
const NAMES = JSON.parse(readFileSync(join(SCENARIOS, "names.json"), "utf8")) as {
  classes: string[];
  methods: Record<string, string[]>;
  fields: Record<string, string[]>;
};

function camel(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

it("both libraries have the same names", () => {
  const exported = lib as unknown as Record<string, { prototype: Record<string, unknown> } | undefined>;
  for (const name of NAMES.classes) {
    assert.ok(exported[name], name);
  }
  for (const [owner, methods] of Object.entries(NAMES.methods)) {
    for (const name of methods) {
      assert.equal(typeof exported[owner]?.prototype[camel(name)], "function", `${owner}.${camel(name)}`);
    }
  }
  const things = { Result: new lib.Result({ metadata: { name: "a" }, spec: {} }), ToolcallError: new lib.ToolcallError("x") };
  for (const [owner, thing] of Object.entries(things)) {
    for (const name of NAMES.fields[owner] ?? []) {
      assert.ok(camel(name) in thing, `${owner}.${camel(name)}`);
    }
  }
});
