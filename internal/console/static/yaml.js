// Prints objects as YAML. Without elements.

// maxText bounds what is printed.
export const maxText = 256 << 10;

const bare = /^[A-Za-z_/][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*$/;
const reserved = /^(?:true|false|null|yes|no|on|off|y|n|~)$/i;

function scalar(value) {
  if (typeof value !== 'string') return JSON.stringify(value) ?? 'null';
  return bare.test(value) && !reserved.test(value) ? value : JSON.stringify(value);
}

// isBlock says whether a text is easier to read as a block, and is the same as one.
function isBlock(value) {
  return typeof value === 'string' && value.includes('\n') && /^[^\s]/.test(value) && !/[^\n\t\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd]/.test(value);
}

function block(value, indent) {
  const keep = value.endsWith('\n\n') ? '+' : value.endsWith('\n') ? '' : '-';
  const lines = (keep === '-' ? value : value.slice(0, -1)).split('\n');
  return [`|${keep}`, ...lines.map((line) => (line === '' ? '' : indent + line))].join('\n');
}

// isNested says that a value takes lines of its own.
function isNested(value) { return typeof value === 'object' && value !== null && Object.keys(value).length > 0; }

function lines(value, indent) {
  if (Array.isArray(value)) {
    return value.flatMap((item) => {
      if (!isNested(item)) return [`${indent}- ${inline(item, `${indent}  `)}`];
      const [first, ...rest] = lines(item, `${indent}  `);
      return [`${indent}- ${first.trimStart()}`, ...rest];
    });
  }
  return Object.entries(value).filter(([, item]) => item !== undefined).flatMap(([key, item]) => {
    if (!isNested(item)) return [`${indent}${scalar(key)}: ${inline(item, `${indent}  `)}`];
    return [`${indent}${scalar(key)}:`, ...lines(item, Array.isArray(item) ? indent : `${indent}  `)];
  });
}

function inline(value, indent) {
  if (isBlock(value)) return block(value, indent);
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? '[]' : '{}';
  return scalar(value);
}

// yaml prints an object, without what the API server keeps about its writers.
export function yaml(object) {
  const {managedFields, ...metadata} = object.metadata ?? {};
  const text = lines({apiVersion: 'toolcall.dev/v1alpha1', kind: 'ToolCall', ...object, metadata}, '').join('\n');
  return text.length > maxText ? `${text.slice(0, maxText)}\n# The rest isn't shown.` : text;
}
