// A TCP proxy in front of the API server. It takes plain HTTP and speaks TLS to the server, so that it can tell requests apart
// and break the connection of one that is meant.

import { readFileSync } from "node:fs";
import net from "node:net";
import tls from "node:tls";
import type { KubeConfig } from "@kubernetes/client-node";

interface Rule {
  request: RegExp;
  after: number;
  times: number;
}

/** The proxy of one test. */
export class Proxy {
  /** How many connections were broken by rules. */
  broken = 0;
  private readonly rules: Rule[] = [];
  private readonly connections = new Set<net.Socket>();
  private isAway = false;

  private constructor(
    private readonly server: net.Server,
    private readonly upstream: tls.ConnectionOptions,
  ) {
    server.on("connection", (socket) => this.connect(socket));
  }

  static async listen(config: KubeConfig): Promise<Proxy> {
    const cluster = config.getCurrentCluster();
    const { hostname, port } = new URL(cluster?.server ?? "");
    const ca = cluster?.caFile ? readFileSync(cluster.caFile) : Buffer.from(cluster?.caData ?? "", "base64");
    const server = net.createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new Proxy(server, { host: hostname, port: Number(port || 443), ca, ...(net.isIP(hostname) ? {} : { servername: hostname }) });
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as net.AddressInfo).port}`;
  }

  /** Breaks the connections of the next requests that match, once so many bytes of the answer have passed. */
  breakAnswers(request: RegExp, { after = 0, times = 1 } = {}): void {
    this.rules.push({ request, after, times });
  }

  /** Breaks no more answers. */
  forget(): void {
    this.rules.length = 0;
  }

  /** Breaks every connection that there is. */
  breakAll(): void {
    for (const socket of this.connections) {
      socket.destroy();
    }
  }

  /** Breaks every connection and takes no new one, or takes them again. */
  goAway(isAway: boolean): void {
    this.isAway = isAway;
    if (isAway) {
      this.breakAll();
    }
  }

  close(): void {
    this.breakAll();
    this.server.close();
  }

  private connect(socket: net.Socket): void {
    if (this.isAway) {
      socket.destroy();
      return;
    }
    const upstream = tls.connect(this.upstream);
    let left = Number.POSITIVE_INFINITY;
    this.connections.add(socket);
    const end = (): void => {
      this.connections.delete(socket);
      socket.destroy();
      upstream.destroy();
    };
    socket.on("error", end).on("close", end);
    upstream.on("error", end).on("close", end);
    socket.on("data", (data) => {
      left = Math.min(left, this.ruleFor(data));
      upstream.write(data);
    });
    upstream.on("data", (data) => {
      socket.write(data.subarray(0, Math.min(left, data.length)), () => {
        if (left <= 0) {
          this.broken++;
          end();
        }
      });
      left -= data.length;
    });
  }

  // After how many bytes of its answer the connection of a request is broken.
  private ruleFor(data: Buffer): number {
    const start = data.subarray(0, 2_000).toString("latin1");
    const rule = this.rules.find((r) => r.times > 0 && r.request.test(start));
    if (!rule) {
      return Number.POSITIVE_INFINITY;
    }
    rule.times--;
    return rule.after;
  }
}
