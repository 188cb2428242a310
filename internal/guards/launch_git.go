package guards

import "strings"

// gitDenied are options that make a subcommand start a program, whatever the subcommand.
func gitDenied(subcommand string) deniedOptions {
	denied := deniedOptions{
		long: "exec upload-pack receive-pack ext-diff textconv filters open-files-in-pager extcmd tool tool-help template paginate " +
			"interactive edit edit-description gpg-sign sign local-user smtp-server sendmail-cmd to-cmd cc-cmd web browser " +
			"config strategy recurse-submodules recursive continue signed show-signature verify-signatures edit-todo fixup squash reedit-message help",
		except: "text filter local verify",
		flags:  "aqv",
		longFlags: "all amend quiet verbose no-verify no-edit staged cached stat name-only name-status oneline graph " +
			"no-color color allow-empty force hard soft mixed",
	}
	if hasField("add commit checkout restore reset stash", subcommand) {
		// The prompt of a patch can start an editor.
		denied.long += " patch"
	}
	if subcommand == "tag" {
		denied.except = "text filter local"
	}
	denied.letters, denied.values = gitLetters(subcommand), gitValues(subcommand)
	return denied
}

// gitLetters are short options that start a program, by subcommand.
func gitLetters(subcommand string) string {
	switch subcommand {
	case "add":
		return "eip"
	case "commit":
		return "SepcCt"
	case "tag":
		return "suev"
	case "grep":
		return "O"
	case "rebase":
		return "ixSs"
	case "merge":
		return "eSs"
	case "cherry-pick", "revert":
		return "eS"
	case "commit-tree":
		return "S"
	case "checkout", "restore", "reset", "stash":
		return "p"
	case "am":
		return "iS"
	case "clone":
		return "uc"
	case "fetch", "ls-remote":
		return "u"
	case "pull":
		return "Ss"
	}
	return ""
}

// gitValues are short options that take the next word as their value, by subcommand.
func gitValues(subcommand string) string {
	switch subcommand {
	case "commit", "tag":
		return "mF"
	case "merge", "stash":
		return "m"
	case "log":
		return "nSG"
	case "grep":
		return "e"
	case "checkout":
		return "b"
	case "switch":
		return "c"
	}
	return ""
}

// checkGit allows known subcommands without the options that start programs. Other names may be aliases, or programs
// named git-NAME.
func checkGit(c *checker, words []word) *refusal {
	rest, refused := gitGlobals(words)
	if refused != nil || len(rest) == 0 {
		return refused
	}
	sub := rest[0]
	switch {
	case !sub.known || sub.derived:
		return refuse(sub, "the subcommand of git is only known at run time", "write it out")
	case hasField(gitRemote, sub.text):
		if refused := c.gitTransport(rest); refused != nil {
			return refused
		}
	case sub.text == "config":
		return gitConfig(rest)
	case sub.text == "remote" && !gitRemoteIsLocal(rest):
		if refused := c.gitTransport(rest); refused != nil {
			return refused
		}
	case sub.text == "bisect" && len(rest) > 1 && rest[1].known && hasField("start good bad old new skip reset log", rest[1].text):
	case !hasField(gitPlain, sub.text):
		return refuse(sub, "the subcommand "+quote(sub.text)+" of git can start programs, or may be an alias", "use one like status, log, diff, show, add or commit -m")
	}
	return c.gitArguments(rest)
}

// gitRemoteIsLocal reports whether git remote only reads and writes the configuration.
func gitRemoteIsLocal(words []word) bool {
	if len(words) == 1 || len(words) == 2 && (words[1].is("-v") || words[1].is("--verbose")) {
		return true
	}
	for _, arg := range words[2:] {
		if !arg.known || strings.HasPrefix(arg.text, "-f") || strings.HasPrefix(arg.text, "--f") {
			return false
		}
	}
	return words[1].known && hasField("add remove rm rename get-url set-url set-branches", words[1].text)
}

const gitRemote = "clone fetch pull push ls-remote"

const gitPlain = "status log diff show rev-parse rev-list ls-files ls-tree cat-file branch tag add commit checkout switch restore " +
	"reset mv rm stash merge cherry-pick revert rebase init describe blame annotate shortlog reflog name-rev merge-base " +
	"for-each-ref show-ref show-branch symbolic-ref update-ref hash-object write-tree read-tree commit-tree mktree diff-tree " +
	"diff-index diff-files apply am format-patch clean count-objects fsck check-ignore check-attr whatchanged cherry " +
	"range-diff grep version var worktree remote sparse-checkout"

// gitGlobals checks the options before the subcommand, and returns the words from the subcommand on.
func gitGlobals(words []word) ([]word, *refusal) {
	for i := 1; i < len(words); i++ {
		arg := words[i]
		switch {
		case arg.is("--no-pager"), arg.is("-P"), arg.is("--version"), arg.is("-v"), arg.is("--no-replace-objects"), arg.is("--literal-pathspecs"), arg.is("--no-optional-locks"):
		case arg.is("-C") && i+1 < len(words) && words[i+1].isSingle():
			i++
		case arg.is("-c") && i+1 < len(words) && gitSafeSetting(words[i+1]):
			i++
		case !arg.mayBeOption() && !arg.many:
			return words[i:], nil
		default:
			return nil, refuse(arg, "the option "+quote(arg.source)+" of git can name a program to run", "leave it out")
		}
	}
	return nil, nil
}

// gitSafeSetting accepts settings that name no program.
func gitSafeSetting(setting word) bool {
	key, _, assigned := strings.Cut(setting.text, "=")
	return assigned && !setting.many && gitSafeKey(key)
}

func gitSafeKey(key string) bool {
	key = strings.ToLower(key)
	switch key {
	case "user.name", "user.email", "core.quotepath", "core.autocrlf", "init.defaultbranch", "pull.rebase", "merge.ff", "log.date", "safe.directory":
		return true
	}
	return strings.HasPrefix(key, "color.") || strings.HasPrefix(key, "advice.")
}

// gitConfig allows reading settings, and writing settings that name no program.
func gitConfig(words []word) *refusal {
	if refused := gitConfigOptions(words); refused != nil {
		return refused
	}
	for _, arg := range words[1:] {
		switch {
		case arg.is("--global"), arg.is("--local"), arg.is("--system"), arg.is("--show-origin"), arg.is("--add"), arg.is("-z"), arg.is("--null"), arg.is("--name-only"):
			continue
		case arg.is("--get"), arg.is("--get-all"), arg.is("--list"), arg.is("-l"), arg.is("get"), arg.is("list"):
			return nil
		case arg.known && gitSafeKey(arg.text):
			return nil
		}
		return refuse(arg, "the setting "+quote(arg.source)+" of git can name a program to run", "set user.name, user.email and the like only, or use --get")
	}
	return nil
}

func gitConfigOptions(words []word) *refusal {
	for _, arg := range words[1:] {
		if arg.many || arg.mayBeOption() && !arg.known {
			return refuse(arg, quote(arg.source)+" may expand to an option of git config", "write it out")
		}
		for _, writes := range []string{"--edit", "--unset-all", "--replace-all", "--rename-section", "--remove-section"} {
			if arg.is("-e") || len(arg.text) > 2 && strings.HasPrefix(writes, arg.text) {
				return refuse(arg, "the option "+quote(arg.source)+" of git config can start an editor", "use --get")
			}
		}
	}
	return nil
}

// gitTransport checks subcommands that use a remote. Unless the address is given and uses HTTP, git may start ssh, or a
// helper that the configuration or the address names.
func (c *checker) gitTransport(words []word) *refusal {
	for _, arg := range words[1:] {
		if strings.Contains(arg.text, "::") {
			return refuse(arg, "the address "+quote(arg.source)+" makes git run a helper", "use an https address")
		}
	}
	for _, arg := range words[1:] {
		if strings.HasPrefix(arg.text, "https://") || strings.HasPrefix(arg.text, "http://") {
			return nil
		}
		if !arg.known || !strings.HasPrefix(arg.text, "-") {
			break
		}
	}
	if c.policy.binaries.allows("ssh") {
		return nil
	}
	return refuse(words[0], "git "+words[0].text+" may start ssh, which is not listed in binaries.allowed", "give an https address right after the options, and options in the form --name=value")
}

func (c *checker) gitArguments(words []word) *refusal {
	sub := words[0].text
	denied := gitDenied(sub)
	switch {
	case sub == "stash" && len(words) > 1 && (words[1].is("show") || words[1].is("list")):
		denied = gitDenied("log")
	case sub == "clone" && c.policy.binaries.allows("ssh"):
		denied.except += " recursive recurse-submodules"
	}
	if refused := denied.scan("git "+sub, words[1:]); refused != nil {
		if refused.fix == fixUnknown {
			refused.fix = "put --end-of-options or -- before it, or write it out"
		}
		return refused
	}
	for _, arg := range words[1:] {
		isFormat := strings.HasPrefix(arg.text, "--f") || strings.HasPrefix(arg.text, "--p")
		if strings.Contains(arg.text, "%G") || strings.Contains(arg.text, "%(sig") || isFormat && !arg.known {
			return refuse(arg, "the format "+quote(arg.source)+" may make git start gpg", "write the format out, without %G")
		}
	}
	return gitMessage(words)
}

// gitMessage requires a message for a commit and for an annotated tag: without one git starts an editor.
func gitMessage(words []word) *refusal {
	annotated, isValue := false, false
	for _, arg := range words[1:] {
		text := arg.text
		if text == "--" || text == "--end-of-options" {
			break
		}
		if isValue {
			isValue = false
			continue
		}
		long, isLong := strings.CutPrefix(text, "--")
		if strings.HasPrefix(long, "message") || strings.HasPrefix(long, "file") || long == "no-edit" || long == "dry-run" {
			return nil
		}
		// An option that isn't known may take the next word.
		isValue = isLong && !strings.Contains(long, "=") && !hasField(gitDenied("").longFlags, long)
		annotated = annotated || long == "annotate"
		if !isLong && len(text) > 1 && text[0] == '-' {
			flags := strings.TrimLeft(text[1:], "asnvqoif")
			if flags != "" && (flags[0] == 'm' || flags[0] == 'F') {
				return nil
			}
			annotated = annotated || strings.Contains(text, "a")
		}
	}
	if words[0].is("commit") || words[0].is("tag") && annotated {
		return refuse(words[0], "git "+words[0].text+" without a message starts an editor", "give the message by -m")
	}
	return nil
}
