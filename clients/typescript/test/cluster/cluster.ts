// A namespace of the real cluster for one test file: the objects of clients/scenarios/setup, and an agent with a token.

import { randomBytes } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import {
  AppsV1Api,
  CoordinationV1Api,
  CoreV1Api,
  KubeConfig,
  KubernetesObjectApi,
  loadAllYaml,
  type KubernetesObject,
} from "@kubernetes/client-node";

/** Folder of the scenario files. */
export const SCENARIOS = scenariosAbove(import.meta.dirname);
/** Whether the tests that need a cluster run. */
export const hasCluster = process.env.TOOLCALL_SCENARIOS === "1";

const OPERATOR_NAMESPACE = "toolcall-system";
const LEASE = "toolcall-operator";

/** What a person decides about the call of a key. */
export interface Decision {
  key: string;
  decision: "Approve" | "Deny";
  note?: string;
}

type Waiting = KubernetesObject & { status?: { reason?: string; approval?: { digest: string } } };

/** A namespace with what the tests need in it. */
export class TestNamespace {
  private constructor(
    readonly name: string,
    readonly admin: KubeConfig,
    /** Credentials of the service account `agent`: its token, and nothing of the administrator. */
    readonly agent: KubeConfig,
  ) {}

  static async create(): Promise<TestNamespace> {
    const admin = new KubeConfig();
    admin.loadFromDefault();
    const name = `toolcall-ts-${randomBytes(4).toString("hex")}`;
    const labels = { "pod-security.kubernetes.io/enforce": "restricted" };
    await admin.makeApiClient(CoreV1Api).createNamespace({ body: { metadata: { name, labels } } });
    try {
      await apply(admin, readFileSync(join(SCENARIOS, "setup/manifests.yaml"), "utf8").replaceAll("${namespace}", name));
      return new TestNamespace(name, admin, await agentConfig(admin, name));
    } catch (error) {
      await remove(admin, name);
      throw error;
    }
  }

  /** Creates more objects in it. */
  apply(manifests: string): Promise<void> {
    return apply(this.admin, manifests.replaceAll("${namespace}", this.name));
  }

  /** Decides about a call, as the administrator, once it waits for a person. */
  async decide({ key, decision, note = "" }: Decision): Promise<void> {
    const late = AbortSignal.timeout(30_000);
    const find = (): Promise<Waiting | undefined> => this.get("ToolCall", key).catch(() => undefined);
    let call = await find();
    while (call?.status?.reason !== "AwaitingApproval") {
      late.throwIfAborted();
      await new Promise((resolve) => setTimeout(resolve, 50));
      call = await find();
    }
    const spec = { callRef: { name: key, uid: call.metadata?.uid }, digest: call.status.approval?.digest, decision, note };
    const metadata = { generateName: "decision-", namespace: this.name };
    const object = { apiVersion: "toolcall.dev/v1alpha1", kind: "ToolCallApproval", metadata, spec };
    await KubernetesObjectApi.makeApiClient(this.admin).create(object);
  }

  /** Reads one of the project's objects in it. */
  get(kind: string, name: string): Promise<KubernetesObject> {
    const metadata = { name, namespace: this.name };
    return KubernetesObjectApi.makeApiClient(this.admin).read({ apiVersion: "toolcall.dev/v1alpha1", kind, metadata });
  }

  /** The agent's credentials for a proxy of the API server that takes plain HTTP. */
  agentAt(server: string): KubeConfig {
    const config = new KubeConfig();
    const cluster = this.agent.getCurrentCluster();
    const user = this.agent.getCurrentUser();
    if (!cluster || !user) {
      throw new Error("the agent's kubeconfig has no context");
    }
    config.loadFromClusterAndUser({ name: cluster.name, server, skipTLSVerify: true }, user);
    return config;
  }

  /** The image of the operator's runner: it has no file but the runner, so neither a shell nor Python. */
  async emptyImage(): Promise<string> {
    const deployment = await this.admin.makeApiClient(AppsV1Api).readNamespacedDeployment({ namespace: OPERATOR_NAMESPACE, name: "toolcall-operator" });
    const args = deployment.spec?.template.spec?.containers[0]?.args ?? [];
    const image = args.find((arg) => arg.startsWith("--runner-image="))?.slice("--runner-image=".length);
    if (!image) {
      throw new Error(`the operator's arguments name no runner image: ${args.join(" ")}`);
    }
    return image;
  }

  /** Deletes the pod of the operator's leader. */
  async killOperator(): Promise<void> {
    const lease = await this.admin.makeApiClient(CoordinationV1Api).readNamespacedLease({ namespace: OPERATOR_NAMESPACE, name: LEASE });
    const pod = (lease.spec?.holderIdentity ?? "").split("_")[0] ?? "";
    await this.admin.makeApiClient(CoreV1Api).deleteNamespacedPod({ namespace: OPERATOR_NAMESPACE, name: pod, gracePeriodSeconds: 0 });
  }

  remove(): Promise<void> {
    return remove(this.admin, this.name);
  }
}

// The compiled test may lie in the build folder of the client, or of one of its adapters.
function scenariosAbove(folder: string): string {
  const here = join(folder, "scenarios");
  return existsSync(join(here, "setup")) ? here : scenariosAbove(dirname(folder));
}

async function apply(admin: KubeConfig, manifests: string): Promise<void> {
  const objects = KubernetesObjectApi.makeApiClient(admin);
  for (const object of loadAllYaml(manifests) as KubernetesObject[]) {
    await objects.create(object);
  }
}

// Removes the namespace, and the policies that begin with its name: policies belong to the cluster.
async function remove(admin: KubeConfig, name: string): Promise<void> {
  await admin.makeApiClient(CoreV1Api).deleteNamespace({ name });
  const objects = KubernetesObjectApi.makeApiClient(admin);
  const policies = await objects.list("toolcall.dev/v1alpha1", "ExecutionPolicy");
  for (const policy of policies.items.filter((p) => p.metadata?.name?.startsWith(name))) {
    await objects.delete({ ...policy, apiVersion: "toolcall.dev/v1alpha1", kind: "ExecutionPolicy" });
  }
}

async function agentConfig(admin: KubeConfig, namespace: string): Promise<KubeConfig> {
  const body = { spec: { audiences: [], expirationSeconds: 3600 } };
  const request = { namespace, name: "agent", body };
  const answer = await admin.makeApiClient(CoreV1Api).createNamespacedServiceAccountToken(request);
  const cluster = admin.getCurrentCluster();
  if (!cluster) {
    throw new Error("KUBECONFIG has no cluster");
  }
  const config = new KubeConfig();
  config.loadFromClusterAndUser(cluster, { name: "agent", token: answer.status?.token ?? "" });
  return config;
}
