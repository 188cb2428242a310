"""An agent's afternoon in one program: a call, a session with files, live output, a server, an error by its reason.

usage: quickstart.py ENVIRONMENT

It runs in the namespace of the kubeconfig's context, or of its pod.
"""

import sys

from toolcall import Denied, Toolcall


def show(text: str) -> None:
    """Prints a piece of live output as it comes."""
    print(text, end="", flush=True)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    environment = sys.argv[1]
    tc = Toolcall()

    # One call, in a pod of its own. `text` is for a model: what was printed, and how long it took.
    result = tc.run('echo "hello from $(pwd)"', environment=environment)
    print(result.text)

    # A session: files last from call to call, and the session ends with the block.
    with tc.session(environment) as s:
        s.files.write("greet.py", "import sys\nprint('Good morning,', sys.argv[1])\n")
        s.files.edit("greet.py", "morning", "evening")
        result = s.commands.run(program="python3", args=["greet.py", "Ada"], timeout=30)
        print(result.stdout, end="")

        # Live output. The key makes the call idempotent: asked for again, it is the same call, and runs once.
        s.commands.run("for i in $(seq 3); do echo step $i; sleep 0.2; done", on_stdout=show, key=f"steps-{s.name}")

        # A program that runs beside the other calls, reads what is written to it, and is read by offset.
        server = s.commands.run(program="cat", background=True)
        server.write("typed\n")
        print(server.read(offset=0, wait_for=10).text, end="")
        server.cancel()

        # A command that fails is a result; a call that may not run is an error, whose message says what would pass.
        print("exit code", s.commands.run("exit 3").exit_code)
        try:
            s.commands.run("curl example.org")
        except Denied as error:
            print("denied:", error.reason)


if __name__ == "__main__":
    main()
