"""Use tools of an MCP server in one conversation: ask.py SERVER... -- TOOL ARGUMENTS [TOOL ARGUMENTS]..."""
import itertools
import json
import subprocess
import sys

end = sys.argv.index("--")
server = subprocess.Popen(sys.argv[1:end], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert server.stdin and server.stdout
numbers = itertools.count(1)


def send(**message):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def request(method, params):
    number = next(numbers)
    send(id=number, method=method, params=params)
    for line in server.stdout:
        answer = json.loads(line)
        if answer.get("id") == number:
            return answer["result"]
    raise SystemExit("the server ended")


client = {"name": "ask", "version": "1"}
request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
send(method="notifications/initialized")
words = sys.argv[end + 1:]
for tool, arguments in zip(words[::2], words[1::2]):
    result = request("tools/call", {"name": tool, "arguments": json.loads(arguments)})
    print(result["content"][0]["text"].rstrip("\n"))
server.stdin.close()
sys.exit(server.wait())
