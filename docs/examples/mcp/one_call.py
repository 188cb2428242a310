"""Calls one tool of the MCP server over standard input and output, as an agent's framework does.

usage: one_call.py TOOL ARGUMENTS [SERVER ...]

ARGUMENTS: a JSON object. SERVER: the command that starts the server, `bin/mcp stdio` by default.
"""

import itertools
import json
import subprocess
import sys

ids = itertools.count(1)


def ask(server, method, params):
    """Sends a request, and returns the result of the answer. Notifications in between are left out."""
    asked = next(ids)
    tell(server, {"id": asked, "method": method, "params": params})
    for line in server.stdout:
        message = json.loads(line)
        if message.get("id") == asked:
            if "error" in message:
                sys.exit(f"{method}: {message['error']['message']}")
            return message["result"]
    sys.exit("the server has ended: its messages are above")


def tell(server, message):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def main(tool, arguments, command):
    # When its standard input is closed, the server cancels what runs, and ends.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "one-call", "version": "1"}}
        ask(server, "initialize", client)
        tell(server, {"method": "notifications/initialized"})
        result = ask(server, "tools/call", {"name": tool, "arguments": json.loads(arguments)})
        server.stdin.close()
    print("is an error:", result.get("isError", False))
    print("\n".join(part["text"] for part in result["content"] if part["type"] == "text"))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:] or ["bin/mcp", "stdio"])
