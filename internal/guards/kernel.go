package guards

import (
	"path"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// checkNames gives the early answer where the kernel holds the list of programs: it refuses a command whose name is
// written out and can't lead to a listed program. What is only known at run time passes, and so does a script that this
// parser can't read: bash and the kernel answer then.
func (p *Policy) checkNames(in *Input) *refusal {
	text := in.Action.Command
	if p.binaries.allowsAny() || !readsBash(in.Shell) || !utf8.ValidString(text) || hasTooManyCommands(text) {
		return nil
	}
	file, err := p.parsers.parse(text, syntax.LangBash)
	if err != nil {
		return nil
	}
	names := nameChecker{walker: newWalker(newChecker(p, in.Env, len(text)), text, syntax.LangBash, scriptOfCall), functions: map[string]bool{}}
	syntax.Walk(file, names.collect)
	if names.definesMore {
		return nil
	}
	syntax.Walk(file, names.check)
	return names.refused
}

// readsBash reports whether the environment's shell reads a script as bash does, as far as names of commands go.
func readsBash(shell []string) bool {
	return len(shell) == 0 || hasField("bash sh dash ash", path.Base(shell[0]))
}

type nameChecker struct {
	*walker
	functions map[string]bool
	// definesMore says that a file or a text may define functions.
	definesMore bool
	refused     *refusal
}

// collect notes the functions that the script defines, wherever that is.
func (n *nameChecker) collect(node syntax.Node) bool {
	switch node := node.(type) {
	case *syntax.FuncDecl:
		if node.Name != nil {
			n.functions[node.Name.Value] = true
		}
	case *syntax.CallExpr:
		if len(node.Args) > 0 {
			n.definesMore = n.definesMore || hasField("eval source . alias enable", node.Args[0].Lit())
		}
	}
	return true
}

func (n *nameChecker) check(node syntax.Node) bool {
	call, ok := node.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 || n.refused != nil {
		return n.refused == nil
	}
	name := n.read(call.Args[0])
	_, builtin := n.policy.shellBuiltins[name.text]
	rules := &n.policy.binaries
	if !name.known || name.derived || name.text == "" || builtin || n.functions[name.text] || rules.allows(name.text) || rules.mayLeadToListed(name.text) {
		return true
	}
	what := "the program " + quote(name.text) + " is not listed in binaries.allowed"
	if strings.Contains(name.text, "/") {
		what = "the program " + quote(name.text) + " is not listed in binaries.allowed, by its path or its name"
	}
	n.refused = refuse(name, what, "use one of "+joinNames(rules.names)+", or have it listed")
	return false
}
