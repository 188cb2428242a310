// What few readers of a call need: its conditions, and the object itself.
import {block, copied, element, isNew, table} from './dom.js';
import {shorten} from './text.js';
import {yaml} from './yaml.js';

export function showConditions(call, into) {
  const {conditions = [], message} = call.status ?? {};
  if (!isNew(into, conditions, message)) return;
  const rows = conditions.map((c) => [c.type, c.status, c.reason, c.message === message ? 'as above' : shorten(c.message ?? '', 1000), c.lastTransitionTime]);
  into.replaceChildren(...(rows.length ? [element('h2', '', 'Conditions'), table(['Condition', 'Status', 'Reason', 'Message', 'Since'], rows)] : []));
}

// showYAML prints a call when it is asked for.
export function showYAML(call, into) {
  if (!isNew(into, call.metadata.resourceVersion)) return;
  const box = into.querySelector('details') ?? element('details', '', element('summary', '', 'YAML'));
  const print = () => {
    if (!box.open) return;
    const text = block(yaml(call));
    text.tabIndex = 0;
    text.setAttribute('role', 'region');
    text.setAttribute('aria-label', 'YAML');
    box.replaceChildren(box.firstChild, copied(`kubectl get toolcall ${call.metadata.name} -n ${call.metadata.namespace} -o yaml`), text);
  };
  box.ontoggle = print;
  into.replaceChildren(box);
  print();
}
