// The scenarios that both client libraries run.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { loadYaml } from "@kubernetes/client-node";
import { Toolcall } from "../../src/index.js";
import { hasCluster, SCENARIOS, TestNamespace } from "./cluster.js";
import { Runner, type Scenario } from "./scenario.js";

describe("scenarios", { skip: !hasCluster && "set TOOLCALL_SCENARIOS=1 and KUBECONFIG" }, () => {
  let namespace: TestNamespace;
  let client: Toolcall;

  before(async () => {
    namespace = await TestNamespace.create();
    client = new Toolcall({ namespace: namespace.name, kubeConfig: namespace.agent });
  });

  after(async () => {
    client.close();
    await namespace.remove();
  });

  for (const file of readdirSync(SCENARIOS).filter((name) => name.endsWith(".yaml"))) {
    const scenario = loadYaml<Scenario>(readFileSync(join(SCENARIOS, file), "utf8"));
    it(`${file}: ${scenario.name}`, { timeout: 180_000 }, () => new Runner(client, namespace, scenario).run());
  }
});
