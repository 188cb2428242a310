// The npm packages that pack.sh makes: as the registry shows them, and good to use in a folder with nothing of this checkout.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, describe, it } from "node:test";
import { SCENARIOS } from "../cluster/cluster.js";

/** A package.json, as far as an index reads it. */
interface Manifest {
  name: string;
  version: string;
  license: string;
  homepage: string;
  description: string;
  keywords: string[];
  bugs: { url: string };
  repository: { url: string; directory: string };
  engines: { node: string };
  types: string;
  exports: { ".": { types: string; default: string } };
  publishConfig: { access: string };
  peerDependencies?: Record<string, string>;
}

const VERSION = "9.8.7";
const ROOT = join(SCENARIOS, "../..");
const PACKAGES = ["client", ...readdirSync(join(ROOT, "clients/typescript/adapters"))];
// A program of somebody who installed them.
const PROGRAM = `
import { Toolcall, type Result } from "@toolcall/client";
import { toolcall } from "@toolcall/computesdk";
import { ToolcallBackend } from "@toolcall/deepagents";
import { sessionTools } from "@toolcall/langchain";
import { ToolcallEditor, ToolcallSandbox, ToolcallShell } from "@toolcall/openai-agents";

export async function first(client: Toolcall): Promise<Result> {
  return client.run("true");
}
console.log([Toolcall, toolcall, ToolcallBackend, sessionTools, ToolcallEditor, ToolcallSandbox, ToolcallShell].map((known) => typeof known).join(" "));
`;
const OPTIONS = ["--target", "es2022", "--lib", "es2022,dom,esnext.disposable", "--module", "nodenext", "--strict", "--skipLibCheck", "--types", "node"];

describe("packages", { skip: process.env.TOOLCALL_FULL !== "1" && "set TOOLCALL_FULL=1", timeout: 1_200_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), "toolcall-packages-"));
  const fileOf = (name: string): string => join(folder, `toolcall-${name}-${VERSION}.tgz`);
  const inside = (name: string, path: string): string => run("tar", "-xzOf", fileOf(name), `package/${path}`);

  // What a command says that has to succeed.
  function run(command: string, ...args: string[]): string {
    const done = spawnSync(command, args, { cwd: folder, encoding: "utf8", maxBuffer: 64 << 20 });
    assert.equal(done.status, 0, `${command} ${args.join(" ")}: ${done.stdout}${done.stderr}`);
    return done.stdout;
  }

  before(() => run(join(ROOT, "clients/typescript/pack.sh"), VERSION, folder));
  after(() => rmSync(folder, { recursive: true }));

  for (const name of PACKAGES) {
    it(`${name} has what the registry shows`, () => {
      const manifest = JSON.parse(inside(name, "package.json")) as Manifest;
      const names = run("tar", "-tzf", fileOf(name)).split("\n");
      assert.deepEqual([manifest.name, manifest.version, manifest.license], [`@toolcall/${name}`, VERSION, "Apache-2.0"]);
      assert.deepEqual([manifest.homepage, manifest.bugs.url], ["https://toolcall.dev", "https://toolcall.dev/operator/issues"]);
      assert.equal(manifest.repository.url, "git+https://toolcall.dev/operator.git");
      assert.ok(existsSync(join(ROOT, manifest.repository.directory, "package.json")), manifest.repository.directory);
      assert.deepEqual([manifest.engines.node, manifest.publishConfig.access], [">=22.19", "public"]);
      assert.ok(manifest.description !== "" && manifest.keywords.includes("toolcall"));
      assert.equal(manifest.peerDependencies?.["@toolcall/client"], name === "client" ? undefined : `^${VERSION}`);
      for (const path of ["README.md", "LICENSE", manifest.types, manifest.exports["."].types, manifest.exports["."].default]) {
        assert.ok(names.includes(join("package", path)), `${path} in ${basename(fileOf(name))}`);
      }
      assert.deepEqual(names.filter((path) => /\/(src|test|node_modules)\//.test(path)), []);
      // The registry shows the readme without the repository around it.
      assert.deepEqual(inside(name, "README.md").match(/\]\((?!https:\/\/|#)[^)]*\)/g), null);
    });

    it(`${name} is what npm publishes, with nothing to correct`, () => {
      // Of a folder npm says what it corrects; of an archive it doesn't.
      const unpacked = mkdtempSync(join(folder, "unpacked-"));
      run("tar", "-xzf", fileOf(name), "-C", unpacked);
      const done = spawnSync("npm", ["publish", "--dry-run", "--ignore-scripts"], { cwd: join(unpacked, "package"), encoding: "utf8" });
      assert.equal(done.status, 0, done.stderr);
      assert.doesNotMatch(done.stderr, /correct|invalid/);
    });
  }

  it("are installed together, compile strictly, and run with the lowest Node.js", () => {
    writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "someone", private: true, type: "module" }));
    writeFileSync(join(folder, "program.ts"), PROGRAM);
    const own = JSON.parse(readFileSync(join(ROOT, "clients/typescript/package.json"), "utf8")) as { devDependencies: Record<string, string> };
    const tools = Object.entries(own.devDependencies).map(([name, version]) => `${name}@${version}`);
    run("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", ...PACKAGES.map(fileOf), "computesdk", ...tools);
    run(join(folder, "node_modules/.bin/tsc"), ...OPTIONS, "program.ts");
    const said = run(process.execPath, "program.js");
    assert.equal(said, "function function function function function function function\n");
  });
});
