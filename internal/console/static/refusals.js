// Counts what policies refused. Without elements.

// ruleOf is the rule of a policy in CEL that a denial names; empty if it names none. The message begins with it.
export function ruleOf(message) { return /^The policy's rule "([a-z0-9-]{1,63})"/.exec(message ?? '')?.[1] ?? ''; }

function count(counts, key) { counts.set(key, (counts.get(key) ?? 0) + 1); }

// policiesOf maps environments, as NAMESPACE/NAME, to the policies that they name, or to the default policy.
export function policiesOf(environments, policies) {
  const byDefault = policies.find((policy) => policy.isDefault)?.name ?? '';
  return new Map(environments.map(({namespace, name, policy}) => [`${namespace}/${name}`, policy || byDefault]));
}

// tally counts denied calls by policy: in all, by reason, and by the rules and requirements that they name. The policy is the one that
// the call's environment has now. Calls without an environment that is still there are under ''.
export function tally(calls, policies) {
  const tallies = new Map();
  for (const {namespace, environment, reason, message, causes = []} of calls) {
    const policy = policies.get(`${namespace}/${environment}`) ?? '';
    if (!tallies.has(policy)) tallies.set(policy, {total: 0, reasons: new Map(), rules: new Map()});
    const of = tallies.get(policy);
    of.total++;
    count(of.reasons, reason);
    const names = new Set([ruleOf(message), ...causes].filter(Boolean));
    for (const name of names) count(of.rules, name);
  }
  return tallies;
}

// stateOf says of an example how it came out, as far as the policy's condition Ready says so.
export function stateOf(name, ready) {
  if (!ready) return 'not judged yet';
  if (ready.status === 'True') return 'comes out as expected';
  if (ready.reason !== 'ExampleFailed') return 'not judged';
  const at = ready.message.indexOf(`spec.examples[${name}] `);
  if (at < 0) return /; and \d+ more|…$/.test(ready.message) ? 'not known: the message names the first that fail' : 'comes out as expected';
  return ready.message.slice(at).split('; spec.examples[')[0];
}
