// The list of policies, with how much each refused.
import {listPath} from './api.js';
import {element, link, table} from './dom.js';
import {Live} from './live.js';
import {showPolicy} from './policypage.js';
import {readRefusals} from './readrefusals.js';
import {tally} from './refusals.js';
import {problem} from './problem.js';
import {head, redraw} from './elements.js';
import {metadataOf} from './watch.js';

const yes = (value) => (String(value) === 'true' ? 'yes' : '');

// showPolicies shows all policies, and what they refused in a namespace or in all, or one policy, until the signal.
export async function showPolicies(namespace, object, into, signal) {
  if (object) return showPolicy(namespace, object, into, signal);
  const state = head('Policies', null, into);
  const note = element('p', 'note', 'Counting refusals…'), shown = element('div');
  into.append(note, shown);
  let refused = null;
  const draw = () => {
    const list = [...live.objects.values()].sort((a, b) => metadataOf(a).name.localeCompare(metadataOf(b).name));
    const tallies = refused && tally(refused.calls, refused.policies);
    const line = (row) => {
      const {name} = metadataOf(row);
      const ready = String(live.cell(row, 'Ready') || 'Unknown');
      const count = tallies ? tallies.get(name)?.total ?? 0 : '';
      return [link(name, 'policies', namespace, name), {True: 'ready', False: 'not ready: nothing runs under it'}[ready] ?? 'not judged yet',
        yes(live.cell(row, 'Default')), String(live.cell(row, 'Access') ?? ''), yes(live.cell(row, 'Shell')), count];
    };
    state.textContent = list.length === 1 ? '1 policy.' : `${list.length} policies${live.more ? ', and there are more' : ''}.`;
    redraw(shown, list.length === 0 ? element('p', 'empty', 'There are no policies.') :
      table(['Policy', 'State', 'Default', 'Access', 'Shell', 'Refused calls'], list.map(line)));
  };
  const live = new Live(state, draw);
  const counting = readRefusals(namespace, signal).then((read) => {
    refused = read;
    note.textContent = read.note;
    live.connected();
  }, (error) => { if (!signal.aborted) note.replaceChildren('Refusals can\'t be counted. ', problem(error)); });
  await Promise.all([live.follow(listPath('executionpolicies', ''), {}, signal), counting]);
}
