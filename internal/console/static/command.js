// What a call runs, as text, and the commands with which its reader goes on. Without elements.

export function quoted(argument) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll('\'', '\'\\\'\'')}'`;
}

// action is what a call runs.
export function action(spec) {
  if (spec.structured) return [spec.structured.binary, ...(spec.structured.args ?? [])].map(quoted).join(' ');
  if (spec.shell) return spec.shell.command;
  if (spec.code) return spec.code.source;
  if (spec.file) return fileAction(spec.file);
  if (spec.tool) return `${spec.tool.name} ${JSON.stringify(spec.tool.arguments ?? {})}`;
  return '';
}

// fileAction is an operation on files with all that it is given: the changes of an Edit as in a diff, then the rest.
function fileAction({operation, path, destination, oldString, newString, replaceAll, edits, ...rest}) {
  const changes = edits ?? (oldString === undefined ? [] : [{oldString, newString, replaceAll}]);
  return [
    [operation, path, destination].filter(Boolean).map(quoted).join(' '),
    ...changes.flatMap(change),
    ...Object.entries(rest).map(([name, value]) => `${name}: ${value}`),
  ].join('\n');
}

function change({oldString, newString, replaceAll}, index) {
  const lines = (text, mark) => (text ? text.split('\n').map((line) => mark + line) : []);
  return [`@@ ${index + 1}${replaceAll ? ', everywhere' : ''} @@`, ...lines(oldString, '-'), ...lines(newString, '+')];
}

// kind says what sort of thing a call runs.
export function kind(spec, mapped) {
  if (spec.shell) return 'Shell command';
  if (spec.code) return `Code in ${spec.code.language}`;
  if (spec.file) return 'File action';
  if (spec.tool) return `Tool ${spec.tool.name}${mapped ? `, run as ${mapped.type}` : ''}`;
  return 'Program';
}

function plugin(verb, {namespace, name}) { return `kubectl toolcall ${verb} ${name} -n ${namespace}`; }

// nextSteps are commands that a reader of a call may want, each with what it does.
export function nextSteps(call) {
  const {metadata, status = {}} = call;
  const again = {
    says: status.retrySafe ? 'Run it again: the command never started' : 'Run it again, once you know what it did: the command may have run',
    command: plugin('rerun', metadata),
  };
  switch (status.phase) {
    case 'Succeeded': return [{says: 'Run it again', command: plugin('rerun', metadata)}];
    case 'Failed': case 'Cancelled': return [again];
    case 'Denied': return [{says: 'See the rule that denied it, and what the policy allows', command: plugin('explain-denial', metadata)}, again];
    case 'Running': return [{says: 'Stop it', command: plugin('cancel', metadata)}];
    default: return [
      ...(status.reason === 'AwaitingApproval' ? [{says: 'Decide', command: plugin('approve', metadata)}] : []),
      {says: 'Cancel it', command: plugin('cancel', metadata)},
    ];
  }
}
