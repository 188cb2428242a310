// What a policy allows instead of what it denied. Without elements.

// lists are what a policy has for the reason of a denial.
const lists = {
  BinaryNotAllowed: {what: 'programs', of: (spec) => spec.binaries?.allowed},
  BinaryNotBareName: {what: 'programs', of: (spec) => spec.binaries?.allowed},
  ShellCommandNotAllowed: {what: 'commands', of: (spec) => spec.binaries?.allowed},
  LanguageNotAllowed: {what: 'languages', of: (spec) => spec.code?.languages},
  NetworkNotAllowed: {what: 'hosts', of: (spec) => spec.network?.allowed?.map(({host, ports}) => host + (ports?.length ? `:${ports.join(',')}` : ''))},
};

// maxListed bounds what is listed.
const maxListed = 60;

// allowed is what a policy lists, in words; null if it lists nothing that would help.
export function allowed(reason, spec) {
  const list = Object.hasOwn(lists, reason) && spec ? lists[reason].of(spec) : null;
  if (!list?.length) return null;
  const more = list.length > maxListed ? ` and ${list.length - maxListed} more` : '';
  return {what: lists[reason].what, values: list.slice(0, maxListed).join(', ') + more};
}
