// The policy that a call is held to now. What it was when the call was decided may have been something else.
import {objectPath, readObject} from './api.js';

// policies are those that were read for this page, by environment, so that a call that changes often doesn't read them again.
const policies = new Map();

// forgetPolicies has them read again.
export function forgetPolicies() { policies.clear(); }

// policyOf returns the environment's name, the policy's, and the policy; as much of it as the user may read, and null for nothing.
export async function policyOf(call, signal) {
  const namespace = call.metadata.namespace, environment = call.status?.environment?.name;
  if (!environment) return null;
  const key = `${namespace}/${environment}`;
  if (!policies.has(key)) policies.set(key, readPolicy(namespace, environment, signal).catch(() => { policies.delete(key); return null; }));
  return policies.get(key);
}

async function readPolicy(namespace, environment, signal) {
  const found = await readObject(objectPath('executionenvironments', namespace, environment), {}, signal);
  const name = found.spec?.policyRef?.name;
  if (!name) return {environment};
  try {
    return {environment, name, policy: await readObject(objectPath('executionpolicies', '', name), {}, signal)};
  } catch (error) {
    signal.throwIfAborted();
    return {environment, name, isForbidden: error.code === 403};
  }
}

// describe says which policy it is, and whether it is broken or weak.
export function describe({environment, name, policy, isForbidden}) {
  if (!name) return `the default policy, or the built-in one, of environment ${environment}`;
  const conditions = policy?.status?.conditions ?? [];
  const ready = conditions.find((c) => c.type === 'Ready'), weak = conditions.find((c) => c.type === 'Weak' && c.status === 'True');
  return `${name}, of environment ${environment}${isForbidden ? ' (you may not read it)' : ''}` +
    `${ready?.status === 'False' ? `; it can't be used: ${ready.message}` : ''}${weak ? `; weaker than it looks: ${weak.message}` : ''}`;
}
