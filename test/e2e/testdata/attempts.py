"""Runs commands that try to start unlisted programs. Prints how many were tried, and for each that left a trace, which:
a line of a mark in the record, or what the image's own id or curl says, in the output or in a file."""
import base64, json, os, re, resource, shutil, signal, subprocess, sys

given = json.load(sys.stdin)
traces = re.compile(rb"uid=\d+\S* gid=[^\n]*|curl: try 'curl --help'[^\n]*|" + given["token"].encode() + rb"[^\n]*")

os.mkdir(given["dir"])
for name in given["names"]:
    path = os.path.join(given["dir"], name)
    with open(path, "wb") as f:
        f.write(base64.b64decode(given["mark"]))
    os.chmod(path, 0o755)
record = open(given["record"], "w+b")
limits = {resource.RLIMIT_CPU: 2, resource.RLIMIT_FSIZE: 4 << 20, resource.RLIMIT_AS: 1 << 30}


def limit():
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))


def start(a, work, output):
    path = os.environ["PATH"]
    if a["marks"]:
        path = given["dir"] + ":" + path
    env = {"PATH": path, "HOME": work, "TERM": "dumb", **a.get("env", {})}
    process = subprocess.Popen(a["argv"], cwd=work, env=env, stdin=subprocess.PIPE, stdout=output, stderr=output,
                               start_new_session=True, preexec_fn=limit)
    try:
        process.communicate(a.get("stdin", "").encode(), timeout=1)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def attempt(number, a):
    work = f"/workspace/work-{number}"
    os.mkdir(work)
    with open(work + "/f", "w") as f:
        f.write("x\ny\n")
    if "git " in " ".join(a["argv"]):
        shutil.copytree("/workspace/repository/.git", work + "/.git")
    with open("/workspace/output", "w+b") as output:
        try:
            start(a, work, output)
        except OSError as e:
            output.write(str(e).encode())
        output.seek(0)
        said = output.read(1 << 20)
    # What came late is found with the next command.
    said += record.read()
    for directory, _, names in os.walk(work):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and not os.path.islink(path) and ".git" not in path:
                with open(path, "rb") as f:
                    said += b"\n" + f.read(1 << 20)
    shutil.rmtree(work, ignore_errors=True)
    return traces.search(said)


os.mkdir("/workspace/repository")
subprocess.run("git init -q . && echo x > f && git add f && git -c user.name=a -c user.email=a@example.com commit -qm a",
               shell=True, check=True, cwd="/workspace/repository")
ran = {}
for number, a in enumerate(given["attempts"]):
    found = attempt(number, a)
    if found:
        ran[number] = found.group().decode(errors="replace")[:200]
print(json.dumps({"tried": len(given["attempts"]), "ran": ran}))
