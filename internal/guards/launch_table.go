package guards

import "mvdan.cc/sh/v3/syntax"

const (
	fixDirect = "run the command itself, as a call of its own"
	fixOpaque = "use a program that is listed and starts no others"
)

// launchRules is the table of programs that can start other programs. It applies to shell calls under Allowlisted and to
// structured calls under Enforced. A program that isn't in the table counts as one that starts no others.
//
// To add a program, find out what it can start: programs that its arguments don't show (opaque), the words after its
// options (prefix), or another program by some options only (deniedOptions). A program that it always starts with
// arguments that the requester can't choose, as tar starts gzip, counts as a part of it.
func launchRules() []launchRule {
	rules := prefixRules()
	rules = append(rules, specialRules()...)
	rules = append(rules, optionRules()...)
	return append(rules, opaqueRules()...)
}

// prefixRules are launchers that run the words after their own options and operands.
func prefixRules() []launchRule {
	return []launchRule{
		{"nice", "runs what follows with another priority", prefix(optionSet{values: "n", flags: "0123456789", long: "adjustment="}, 0)},
		{"nohup", "runs what follows without hang-ups", prefix(optionSet{}, 0)},
		{"timeout", "runs what follows for a limited time", prefix(optionSet{flags: "vfp", values: "sk", long: "signal= kill-after= preserve-status foreground verbose"}, 1)},
		{"stdbuf", "runs what follows with other buffers", prefix(optionSet{values: "ioe", long: "input= output= error="}, 0)},
		{"setsid", "runs what follows in a session of its own", prefix(optionSet{flags: "cfw", long: "ctty fork wait"}, 0)},
		{"ionice", "runs what follows with another priority for disks", prefix(optionSet{flags: "t", values: "cn", long: "class= classdata= ignore"}, 0)},
		{"chrt", "runs what follows under another scheduler", prefix(optionSet{flags: "abfiorRv", long: "batch fifo idle other rr"}, 1)},
		{"taskset", "runs what follows on some processors", prefix(optionSet{flags: "ac", long: "cpu-list all-tasks"}, 1)},
		{"time", "runs and measures what follows", prefix(optionSet{flags: "apvq", values: "fo", long: "append portability verbose quiet format= output="}, 0)},
		{"flock", "runs what follows while it holds a lock", prefix(optionSet{flags: "sexunoF", values: "wE", long: "shared exclusive unlock nonblock nb close no-fork timeout= wait= conflict-exit-code="}, 1)},
		{"sudo doas", "runs what follows as another user", prefix(optionSet{flags: "nHkSb", values: "ug", long: "non-interactive set-home user= group="}, 0)},
		{"setpriv", "runs what follows with other privileges", prefix(optionSet{long: "no-new-privs nnp clear-groups keep-groups init-groups reuid= regid="}, 0)},
		{"chronic ifne", "runs what follows", prefix(optionSet{}, 0)},
		{"linux32 linux64", "runs what follows as another machine type", prefix(optionSet{}, 0)},
	}
}

// specialRules are programs whose arguments are read by rules of their own.
func specialRules() []launchRule {
	return []launchRule{
		{"env", "runs what follows with other variables", checkEnvProgram},
		{"xargs", "runs what follows with arguments that it reads", checkXargs},
		{"find", "runs commands by -exec, -execdir, -ok and -okdir", checkFind},
		{"bash", "runs a script", checkShell(syntax.LangBash)},
		{"sh dash ash", "runs a script", checkShell(syntax.LangBash, syntax.LangPOSIX)},
		{"awk gawk mawk nawk original-awk", "runs commands by system, pipes and getline", checkAwk},
		{"sed gsed", "runs commands by e and s///e", checkSed},
		{"tar gtar bsdtar", "runs programs by options like --to-command and -I", checkTar},
		{"git", "runs programs that options, configuration and hooks name", checkGit},
	}
}

// optionRules are programs that start others by some options only.
func optionRules() []launchRule {
	denied := func(d deniedOptions) launchCheck { return d.check }
	return []launchRule{
		{"sort gsort", "compresses with another program", denied(deniedOptions{long: "compress-program", values: "kotST", flags: "bdfghiMnRrVcCmsuz", longFlags: "reverse unique numeric-sort"})},
		{"split gsplit", "pipes into a filter", denied(deniedOptions{long: "filter", values: "abClnt"})},
		{"rg", "preprocesses with another program", denied(deniedOptions{long: "pre hostname-bin", except: "pretty", values: "ABCEMTdefgjmrt"})},
		{"fd fdfind", "runs commands on what it finds", denied(deniedOptions{long: "exec exec-batch", except: "exclude extension", letters: "xX", values: "EeStdcjo"})},
		{"ag ack bat batcat delta", "starts a pager", denied(deniedOptions{long: "pager"})},
		{"rsync", "starts a remote shell", checkRemote(deniedOptions{long: "rsh rsync-path remote-option daemon config", letters: "eM", values: "fTB"})},
		{"diff gdiff", "paginates with pr", denied(deniedOptions{long: "paginate", letters: "l", values: "CDFIUWxXS"})},
		{"sdiff diff3", "starts another diff", denied(deniedOptions{long: "diff-program output", letters: "o"})},
		{"patch", "runs ed scripts", denied(deniedOptions{long: "ed get", letters: "eg", values: "BdDFioprVxYz"})},
		{"install ginstall", "strips with another program", denied(deniedOptions{long: "strip-program", values: "gmotS"})},
		{"wget", "starts a helper that asks for passwords", denied(deniedOptions{long: "use-askpass execute config", letters: "e", values: "aoOPQtTUwiBlADIRX"})},
		{"zip", "tests with another program", denied(deniedOptions{long: "unzip-command", letters: "T", values: "bnt"})},
		{"openssl", "loads engines and providers", denied(deniedOptions{long: "engine provider provider-path config", single: true})},
		{"tcpdump", "runs a program on each file", denied(deniedOptions{long: "postrotate-command", letters: "z", values: "BcCEFGijmMrsTVwWyQ"})},
		{"file", "starts programs to look into compressed files", denied(deniedOptions{long: "uncompress uncompress-noreport", letters: "zZ", values: "eFfmP"})},
		{"gpg gpg2", "starts helpers that options name", denied(deniedOptions{long: "agent-program dirmngr-program photo-viewer exec-path keyboxd-program options homedir pinentry-mode", values: "ruNo"})},
		{"cpio", "starts a remote shell", checkRemote(deniedOptions{long: "rsh-command", values: "CEFHIMOR"})},
		{"ip", "runs commands in namespaces", denied(deniedOptions{long: "batch", single: true, words: "netns netn net vrf exec"})},
		{"hostnamectl journalctl", "starts a pager or a remote shell", denied(deniedOptions{long: "host machine", letters: "HM"})},
	}
}

// opaqueRules are programs whose arguments don't show what they run, or that run it where the list of programs doesn't
// apply, as docker does.
func opaqueRules() []launchRule {
	return []launchRule{
		opaqueRule("python pypy jython ipython ruby jruby irb perl php node nodejs deno bun ts-node tsx lua luajit tclsh wish expect guile R Rscript julia octave java groovy scala kotlin elixir iex erl ghci runghc ocaml sbcl clisp racket pwsh osascript jshell gnuplot m4 dc maxima swipl",
			"runs any code, and so any program", "use a code call for code, or "+fixOpaque),
		opaqueRule("zsh ksh mksh oksh pdksh yash fish csh tcsh rc es rbash xonsh nu elvish busybox toybox",
			"runs a shell or applets that are not read as bash", "use bash -c 'commands'"),
		opaqueRule("vi vim vim.basic vim.tiny vim.nox nvim view vimdiff ex ed red emacs nano pico rnano joe mc less more most man info w3m lynx links elinks mutt mail mailx vidir vipe sensible-editor sensible-pager editor pager",
			"runs commands that are typed into it", "use cat, head or sed -n to read"),
		opaqueRule("make gmake cmake ctest ninja meson scons bazel gradle mvn ant rake just task tox nox invoke gcc g++ cc c++ clang clang++ cpp ld go gofmt cargo rustc rustup dotnet msbuild ghc cabal stack mix rebar3 sbt lein npm npx yarn pnpm pip pipx uv uvx poetry pipenv conda gem bundle composer cpan nix brew apt apt-get aptitude dpkg rpm yum dnf apk pacman snap",
			"runs what build files, packages or their scripts say", fixOpaque),
		opaqueRule("ssh scp sftp ftp lftp telnet mosh rsh rlogin nc nc.openbsd nc.traditional ncat netcat socat docker podman nerdctl ctr crictl kubectl helm oc vagrant ansible ansible-playbook terraform packer salt fab hg svn bzr cvs gh glab",
			"runs programs on another machine, in a container, or ones that its configuration names", fixOpaque),
		opaqueRule("su runuser sg newgrp login pkexec chroot unshare nsenter proot fakeroot fakechroot bwrap firejail capsh schroot debootstrap machinectl systemd-run systemd-nspawn ld.so ldd",
			"runs programs with another root, user or loader, where a name can mean something else", fixDirect),
		opaqueRule("watch parallel script scriptreplay screen tmux dtach abduco at batch crontab run-parts start-stop-daemon entr hyperfine unbuffer dbus-run-session xvfb-run xdg-open setarch numactl prlimit cgexec chpst mispipe pee unzipsfx",
			"runs commands by ways of its own", fixDirect),
		opaqueRule("gdb lldb strace ltrace perf valgrind rr bpftrace stap gcore catchsegv",
			"runs and controls programs", fixDirect),
		opaqueRule("sqlite3 psql mysql mariadb mongo mongosh redis-cli nmap tshark convert magick identify mogrify gs tex latex pdflatex xelatex lualatex rename prename file-rename fzf systemctl init logrotate",
			"can run programs by commands or delegates of its own", fixOpaque),
	}
}

func opaqueRule(names, reason, fix string) launchRule {
	return launchRule{names: names, reason: reason, check: opaque(reason, fix)}
}
