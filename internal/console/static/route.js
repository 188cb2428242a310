// What the address after # says.
const label = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const name = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/;

export function isLabel(text) { return label.test(text); }

// objects says of each view whether it shows an object: it never does, it may, or it must. Policies are in no namespace.
const objects = {calls: 'never', sessions: 'may', call: 'must', approvals: 'may', use: 'never', policies: 'may'};

// routeOf is the view, the namespace and the object of an address; null if there is no such page.
export function routeOf(hash) {
  const [view = '', namespace = '', object = '', ...more] = hash.replace(/^#\/?/, '').split('/');
  if (view === '' && !namespace) return {view: 'calls', namespace: '', object: ''};
  if (!Object.hasOwn(objects, view) || more.length || (namespace && !label.test(namespace)) || (object && !name.test(object))) return null;
  if (object ? objects[view] === 'never' || (!namespace && view !== 'policies') : objects[view] === 'must') return null;
  return {view, namespace, object};
}
