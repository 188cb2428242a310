// Calls over node:https alone: what the API server, the operator and the network take, with no client's share.

import https from "node:https";
import { createInterface } from "node:readline";
import type { KubeConfig } from "@kubernetes/client-node";

/** Requests of one session, over connections that are kept. */
export class Bare {
  private ended: (name: string) => void = () => {};

  private constructor(
    private readonly options: https.RequestOptions,
    private readonly url: string,
    private readonly sessionRef: { name: string; uid: string },
  ) {}

  /** Opens the one watch by which all calls' ends are seen. */
  static async open(config: KubeConfig, namespace: string, sessionRef: { name: string; uid: string }): Promise<{ bare: Bare; close(): void }> {
    const options: https.RequestOptions = {};
    await config.applyToHTTPSOptions(options);
    options.agent = new https.Agent({ keepAlive: true });
    const server = config.getCurrentCluster()?.server ?? "";
    const bare = new Bare(options, `${server}/apis/toolcall.dev/v1alpha1/namespaces/${namespace}/toolcalls`, sessionRef);
    const watch = https.get(`${bare.url}?watch=true&fieldSelector=spec.sessionRef.name%3D${sessionRef.name}`, options);
    watch.on("error", () => {});
    watch.on("response", (body) => createInterface(body).on("line", (line) => bare.event(line)).on("error", () => {}));
    return { bare, close: () => watch.destroy() };
  }

  /** Creates a call and waits for its end. */
  async run(name: string): Promise<void> {
    const end = new Promise<void>((resolve) => {
      this.ended = (finished) => finished === name && resolve();
    });
    const spec = { sessionRef: this.sessionRef, shell: { command: "true" } };
    const body = JSON.stringify({ apiVersion: "toolcall.dev/v1alpha1", kind: "ToolCall", metadata: { name }, spec });
    const headers = { ...this.options.headers, "content-type": "application/json", "content-length": Buffer.byteLength(body) };
    await new Promise<void>((resolve, reject) => {
      const request = https.request(this.url, { ...this.options, method: "POST", headers }, (answer) => answer.resume().on("end", resolve));
      request.on("error", reject);
      request.end(body);
    });
    await end;
  }

  private event(line: string): void {
    const { object } = JSON.parse(line) as { object: { metadata: { name: string }; status?: { phase?: string } } };
    if (["Succeeded", "Failed", "Denied", "Cancelled"].includes(object.status?.phase ?? "")) {
      this.ended(object.metadata.name);
    }
  }
}
