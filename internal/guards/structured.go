package guards

import (
	"fmt"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
)

// metacharacters have a meaning in shells. An argument with one may be meant for a shell.
const metacharacters = "|&;$`<>(){}\n\r\x00"

func checkBinaryGiven(in *Input) *Denial {
	if strings.TrimSpace(in.Action.Binary) == "" {
		return deny(v1alpha1.ReasonEmptyCommand, "the binary is empty: name the program to run, like \"ls\"")
	}
	if strings.Contains(in.Action.Binary, "\x00") {
		return deny(v1alpha1.ReasonInvalidArguments, "binary %s contains a NUL byte: remove it", quote(in.Action.Binary))
	}
	return nil
}

func (b *binaryRules) checkName(in *Input) *Denial {
	binary := in.Action.Binary
	if strings.Contains(binary, "..") {
		return deny(v1alpha1.ReasonBinaryPathTraversal,
			"binary %s contains \"..\": use the bare name of a program, like \"ls\"", quote(binary))
	}
	if strings.Contains(binary, "/") && (b.allowsAny() || !b.allows(binary)) {
		return deny(v1alpha1.ReasonBinaryNotBareName,
			"binary %s contains a slash, and binaries.allowed doesn't list this path: use the bare name of a program, which is looked up in PATH, like \"ls\"", quote(binary))
	}
	return nil
}

func (b *binaryRules) checkListed(in *Input) *Denial {
	if b.allows(in.Action.Binary) {
		return nil
	}
	return deny(v1alpha1.ReasonBinaryNotAllowed,
		"binary %s is not listed in the policy's binaries.allowed (names are case-sensitive): %s%s",
		quote(in.Action.Binary), useListed(b.names), wordsHint(in.Action.Binary)).instead(b.names)
}

// wordsHint says what to do about a binary that looks like a command line; empty for any other.
func wordsHint(binary string) string {
	words := strings.Fields(binary)
	if len(words) < 2 {
		return ""
	}
	return fmt.Sprintf("; binary is one program, and args are its arguments: binary %s, args [%s]", quote(words[0]), quote(words[1])+map[bool]string{true: ", …"}[len(words) > 2])
}

// checkNUL refuses arguments that a process can't be started with.
func checkNUL(args []string) *Denial {
	for i, arg := range args {
		if strings.Contains(arg, "\x00") {
			return deny(v1alpha1.ReasonInvalidArguments, "argument %d, %s, contains a NUL byte, at which every argument ends: remove it, or pass the text by stdin", i, quote(arg))
		}
	}
	return nil
}

func (p *Policy) checkArguments(in *Input) *Denial {
	if !p.denyMeta {
		return checkNUL(in.Action.Args)
	}
	for i, arg := range in.Action.Args {
		if at := strings.IndexAny(arg, metacharacters); at >= 0 {
			return deny(v1alpha1.ReasonArgumentNotAllowed,
				"argument %d, %s, contains the shell metacharacter %q (arguments.metacharacters is Deny): leave it out, or pass the text by stdin",
				i, quote(arg), arg[at])
		}
		if strings.Contains(arg, "..") {
			return deny(v1alpha1.ReasonArgumentNotAllowed,
				"argument %d, %s, contains \"..\" (arguments.metacharacters is Deny): use a path without it, and workingDir to start elsewhere",
				i, quote(arg))
		}
	}
	return nil
}
