"""Runs each source that it is given, in a process of its own, and tells which of the given modules it imported itself.

Input: a line of JSON with the modules, then a line of JSON for each source. Output: a line of JSON for each.
"""
import builtins, json, os, resource, signal, sys

real_import = builtins.__import__
real_exit = os._exit


def imported(names, hits):
    def hook(name, globals=None, locals=None, fromlist=(), level=0):
        module = real_import(name, globals, locals, fromlist, level)
        where = sys._getframe(1).f_code.co_filename
        if where in ("<guarded>", "<string>"):
            hits.update({name.split(".")[0]} & names)
            hits.update(n for n in fromlist or () if n in names and isinstance(getattr(module, n, None), type(sys)))
        return module
    return hook


def run(source, names, out):
    signal.alarm(2)
    resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    resource.setrlimit(resource.RLIMIT_NPROC, (64, 64))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    hits = set()
    builtins.__import__ = imported(names, hits)
    try:
        exec(compile(source.encode("utf-8", "surrogatepass"), "<guarded>", "exec"), {"__name__": "__main__", "__builtins__": builtins})
    except BaseException:
        pass
    os.write(out, json.dumps(sorted(hits)).encode())


def main():
    names = set(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                run(json.loads(line), names, send)
            finally:
                real_exit(0)
        os.close(send)
        answer = b""
        while part := os.read(receive, 65536):
            answer += part
        os.close(receive)
        os.waitpid(child, 0)
        print(answer.decode() or "[]", flush=True)


main()
