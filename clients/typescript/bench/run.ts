// Measures what this library adds: to a call of a session, `session.commands.run("true")`, and to the import of the Kubernetes
// client. The call itself is a bare request over a kept connection, with one watch that is open for all calls. Calls of the library
// and bare ones alternate in one session, so that both see the same cluster.
//
// usage: KUBECONFIG=… node build/bench/run.js [CALLS]
//
// KUBECONFIG is an administrator's: it makes a namespace as the tests do. With CALLS=0 it measures the import alone, without a
// cluster.

import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { promisify } from "node:util";
import { Toolcall, type Session } from "../src/index.js";
import { TestNamespace } from "../test/cluster/cluster.js";
import { Bare } from "./bare.js";

const WARM_UP = 20;
const IMPORTS = 15;

async function main(): Promise<void> {
  const count = Number(process.argv[2] ?? 300);
  if (count > 0) {
    await calls(count);
  }
  await imports();
}

async function calls(count: number): Promise<void> {
  const namespace = await TestNamespace.create();
  try {
    const client = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agent });
    await using session = await client.session("tools");
    const { bare, close } = await Bare.open(namespace.agent, namespace.name, { name: session.name, uid: session.uid });
    await compare(session, bare, count);
    close();
    await session.end();
    client.close();
  } finally {
    await namespace.remove();
  }
}

async function compare(session: Session, bare: Bare, count: number): Promise<void> {
  const through: number[] = [];
  const alone: number[] = [];
  for (let i = 0; i < WARM_UP + count; i++) {
    through.push(await timed(() => session.commands.run("true")));
    alone.push(await timed(() => bare.run(`bare-${randomBytes(8).toString("hex")}`)));
  }
  const difference = show('session.commands.run("true")', through.slice(WARM_UP)) - show("the call itself", alone.slice(WARM_UP));
  aim('commands.run("true") above the call, p50', difference, 4);
}

// Imports the Kubernetes client and this library after it, each time in a new process.
async function imports(): Promise<void> {
  const library = join(import.meta.dirname ?? "", "../src/index.js");
  const program =
    'const a = performance.now(); await import("@kubernetes/client-node"); const b = performance.now(); ' +
    `await import(${JSON.stringify(library)}); console.log(JSON.stringify([b - a, performance.now() - b]))`;
  const base: number[] = [];
  const ours: number[] = [];
  for (let i = 0; i < IMPORTS; i++) {
    const args = [...process.execArgv, "--input-type=module", "-e", program];
    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: import.meta.dirname });
    const [first = 0, second = 0] = JSON.parse(stdout) as number[];
    base.push(first);
    ours.push(second);
  }
  show("import of @kubernetes/client-node", base);
  aim("import of this library beyond it, p50", show("import of this library after it", ours), 150);
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await work();
  return performance.now() - started;
}

// Prints a row, and returns its median.
function show(name: string, milliseconds: number[]): number {
  const [p50 = Number.NaN, p90 = p50, p99 = p50] = [0.5, 0.9, 0.99].map((q) => quantile(milliseconds, q));
  const [median, more, most] = [p50, p90, p99].map((value) => value.toFixed(1).padStart(7));
  console.log(`${name.padEnd(46)} p50 ${median}   p90 ${more}   p99 ${most} ms   n ${milliseconds.length}`);
  return p50;
}

// Prints a figure that has an aim.
function aim(name: string, milliseconds: number, most: number): void {
  console.log(`${name.padEnd(46)} ${milliseconds.toFixed(2).padStart(11)} ms   aim: at most ${most}`);
}

function quantile(values: number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN;
}

await main();
