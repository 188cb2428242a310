package initialize

import (
	"encoding/json"
	"strings"

	"toolcall.dev/operator/internal/plugin/cli"
)

// firstLine is a first call for shells: it has no program to start.
const firstLine = `echo "hello from $(pwd)"`

// firstSources are first calls in languages.
var firstSources = map[string]string{
	"python": "print(6 * 7)", "javascript": "console.log(6 * 7)", "perl": `print 6 * 7, "\n"`, "ruby": "puts 6 * 7",
}

// lines are a first call in Python and in TypeScript: the same that the policy's first example allows.
func (p *plan) lines() string {
	python, typescript := p.callLines()
	return "# Python\nfrom toolcall import Toolcall\ntc = Toolcall()\n" + python +
		"\n// TypeScript\nimport { Toolcall } from \"@toolcall/client\";\nconst tc = new Toolcall();\n" + typescript
}

func (p *plan) callLines() (python, typescript string) {
	call, environment := p.firstCall(), literal(p.agent)
	inPython, inTypeScript := "", ""
	switch {
	case call.Shell != nil:
		inPython = quoted(call.Shell.Command)
		inTypeScript = inPython
	case call.Code != nil:
		source, language := literal(call.Code.Source), literal(call.Code.Language)
		inPython = "code=" + source + ", language=" + language
		inTypeScript = "{ code: " + source + ", language: " + language + " }"
	case call.Structured != nil:
		program, args := literal(call.Structured.Binary), literal(call.Structured.Args)
		inPython = "program=" + program + ", args=" + args
		inTypeScript = "{ program: " + program + ", args: " + args + " }"
	default:
		return "with tc.session(" + environment + ") as session:\n    print(session.files.list())\n",
			"await using session = await tc.session(" + environment + ");\nconsole.log(await session.files.list());\n"
	}
	return "result = tc.run(" + inPython + ", environment=" + environment + ")\nprint(result.text)\n",
		"const result = await tc.run(" + inTypeScript + ", { environment: " + environment + " });\nconsole.log(result.text);\n"
}

// literal is a value as both languages write it.
func literal(value any) string {
	raw, err := json.Marshal(value)
	cli.Must(err)
	return string(raw)
}

// quoted is a text with double quotes in single ones, as both languages allow.
func quoted(text string) string {
	if strings.ContainsAny(text, `'\`) {
		return literal(text)
	}
	return "'" + text + "'"
}
