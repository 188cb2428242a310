// Saves bytes as a file. The browser never opens them.

// maxSaved bounds what goes through the browser's memory.
export const maxSaved = 64 << 20;

// fileName is the last part of a path, without what a name shouldn't have.
export function fileName(path) {
  const name = path.split('/').pop().replace(/[\p{C}\p{Zl}\p{Zp}\\:*?"<>|]/gu, '_').replace(/^[.\s]+|[.\s]+$/g, '_');
  return name || 'artifact';
}

export function saveAs(path, parts) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob(parts, {type: 'application/octet-stream'}));
  link.download = fileName(path);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// saveStream saves a whole stream of a call.
export async function saveStream(stream, total, {name, namespace, stream: which, signal}, note) {
  if (total > maxSaved) {
    note(`It is too large for a browser. Use: kubectl toolcall logs ${name} -n ${namespace} --stream ${which}`);
    return;
  }
  const parts = [];
  await stream.range(0, total, (chunk) => parts.push(chunk), signal, (first, last) => note(`The saved file lacks bytes ${first} to ${last}.`));
  saveAs(`${name}.${which}`, parts);
}
