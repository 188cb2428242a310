// Measures what this library adds to a call: `true` in a ready session, in turns through the library, through the plain
// Kubernetes client and over node:https alone, and how long the library takes to import.
//
// usage: KUBECONFIG=… node build/bench/run.js [CALLS]   (an administrator's KUBECONFIG)

import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { CustomObjectsApi, Watch, type KubeConfig } from "@kubernetes/client-node";
import { Toolcall, type Session, type ToolCall } from "../src/index.js";
import { TestNamespace } from "../test/cluster/cluster.js";
import { Bare } from "./bare.js";

const KIND = { group: "toolcall.dev", version: "v1alpha1", plural: "toolcalls" };
const SOURCE = join(import.meta.dirname ?? "", "../../bench");
const WARM_UP = 20;

/** Calls through the Kubernetes client alone. */
class Raw {
  private readonly api: CustomObjectsApi;
  private readonly path: string;
  private ended: (name: string) => void = () => {};

  constructor(
    private readonly config: KubeConfig,
    private readonly session: Session,
    private readonly namespace: string,
  ) {
    this.api = config.makeApiClient(CustomObjectsApi);
    this.path = `/apis/${KIND.group}/${KIND.version}/namespaces/${namespace}/${KIND.plural}`;
  }

  /** Opens one watch for all calls of the session: the fastest that the client can do. */
  open(): Promise<AbortController> {
    const query = { fieldSelector: `spec.sessionRef.name=${this.session.name}` };
    return new Watch(this.config).watch(this.path, query, (_, call: ToolCall) => isFinished(call) && this.ended(call.metadata.name), () => {});
  }

  /** A call whose end the open watch tells. */
  async shared(): Promise<void> {
    const name = newName();
    const end = new Promise<void>((resolve) => {
      this.ended = (finished) => finished === name && resolve();
    });
    await this.create(name);
    await end;
  }

  /** A call with a watch of its own, opened once it is created. */
  async single(): Promise<void> {
    const name = newName();
    await this.create(name);
    let request: AbortController | undefined;
    await new Promise<void>((resolve, reject) => {
      const watch = new Watch(this.config);
      const event = (_: string, call: ToolCall): void => (isFinished(call) ? resolve() : undefined);
      watch.watch(this.path, { fieldSelector: `metadata.name=${name}` }, event, () => {}).then((r) => (request = r), reject);
    });
    request?.abort();
  }

  private async create(name: string): Promise<void> {
    const sessionRef = { name: this.session.name, uid: this.session.uid };
    const body = { apiVersion: "toolcall.dev/v1alpha1", kind: "ToolCall", metadata: { name }, spec: { sessionRef, structured: { binary: "true" } } };
    await this.api.createNamespacedCustomObject({ ...KIND, namespace: this.namespace, body });
  }
}

async function main(): Promise<void> {
  const count = Number(process.argv[2] ?? 300);
  const namespace = await TestNamespace.create();
  try {
    await namespace.apply(readFileSync(join(SOURCE, "environment.yaml"), "utf8"));
    const client = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agent });
    await using session = await client.session("plain");
    const { bare, close } = await Bare.open(namespace.agent, namespace.name, { name: session.name, uid: session.uid });
    await measure(session, new Raw(namespace.agent, session, namespace.name), bare, count);
    close();
    await session.end();
    client.close();
  } finally {
    await namespace.remove();
  }
  await imports();
}

async function measure(session: Session, raw: Raw, bare: Bare, count: number): Promise<void> {
  const watch = await raw.open();
  const rows = { library: [] as number[], itself: [] as number[], above: [] as number[], bare: [] as number[], shared: [] as number[], single: [] as number[] };
  for (let i = -WARM_UP; i < count; i++) {
    const started = performance.now();
    const result = await session.commands.run({ program: "true" });
    const library = performance.now() - started;
    const itself = result.object.status?.timings?.finishedMilliseconds ?? 0;
    const alone = await timed(() => bare.run(newName()));
    const shared = await timed(() => raw.shared());
    const single = await timed(() => raw.single());
    if (i >= 0) {
      rows.library.push(library);
      rows.itself.push(itself);
      rows.above.push(library - itself);
      rows.bare.push(alone);
      rows.shared.push(shared);
      rows.single.push(single);
    }
  }
  watch.abort();
  print("the library", rows.library);
  print("node:https alone, one watch for all calls", rows.bare);
  print("Kubernetes client, one watch for all calls", rows.shared);
  print("Kubernetes client, create then watch", rows.single);
  print("status.timings.finishedMilliseconds", rows.itself);
  print("the library above status.timings", rows.above);
  console.log(`the library above node:https alone, p50: ${(quantile(rows.library, 0.5) - quantile(rows.bare, 0.5)).toFixed(2)} ms`);
  console.log(`the library above the client's one watch, p50: ${(quantile(rows.library, 0.5) - quantile(rows.shared, 0.5)).toFixed(2)} ms`);
}

async function imports(): Promise<void> {
  const client: number[] = [];
  const both: number[] = [];
  for (let i = 0; i < 15; i++) {
    client.push(await importTime("@kubernetes/client-node"));
    both.push(await importTime(join(import.meta.dirname ?? "", "../src/index.js")));
  }
  print("import of @kubernetes/client-node", client);
  print("import of this library, which imports it", both);
}

async function importTime(module: string): Promise<number> {
  const program = `const t = performance.now(); await import(${JSON.stringify(module)}); console.log(performance.now() - t)`;
  const { stdout } = await promisify(execFile)(process.execPath, [...process.execArgv, "--input-type=module", "-e", program]);
  return Number(stdout);
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await work();
  return performance.now() - started;
}

function print(name: string, milliseconds: number[]): void {
  const [p50, p90, p99] = [0.5, 0.9, 0.99].map((q) => quantile(milliseconds, q).toFixed(1).padStart(7));
  console.log(`${name.padEnd(46)} p50 ${p50}   p90 ${p90}   p99 ${p99} ms   n ${milliseconds.length}`);
}

function quantile(values: number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN;
}

function newName(): string {
  return `raw-${randomBytes(8).toString("hex")}`;
}

function isFinished(call: ToolCall): boolean {
  return (call.status?.conditions ?? []).some((c) => c.type === "Finished" && c.status === "True");
}

await main();
