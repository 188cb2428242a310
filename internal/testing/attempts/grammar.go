package attempts

var separators = []string{"\n", "; ", " && ", " || ", " | ", " & ", " # \\\n", "\n:\n"}

// statements are built around commands by the shell's grammar.
var statements = []string{
	"%c", "%c", "%c; %c", "if %c; then %c; fi", "if ! %c; then %c; fi", "for x in %w; do %c; done", "case %w in %w|*) %c;; esac",
	"f() { %c; }; f", "f() (%c); f", "function f { %c; }\nf", "(%c)", "{ %c; }", "! %c", "time %c", "coproc %c", "coproc X { %c; }",
	"trap %q EXIT", "trap %q DEBUG; :", "trap %q ERR; ! :", "eval %q", "x=%q; $x", "x=(%w); $x", "cat <<E\n$(%c)\nE", "cat <<'E'\n$(%c)\nE\n%c",
	"[[ %w == %w ]]", "[[ a -eq a[$(%c)] ]]", "echo $((a[$(%c)]))", "(( a[$(%c)] ))", "let 'a[$(%c)]'", "exec %c", "while %c; do break; done",
	"until %c; do %c; break; done", "select x in %w; do %c; break; done <<< 1", "x=%w %c", "declare -A m; m[$(%c)]=1", "OPTIND='a[$(%c)]'",
	"k='a[$(%c)]'; [[ k -eq 1 ]]", "printf -v 'a[$(%c)]' x", "read x <<< %w; $x", "mapfile -C %q -c 1 <<< x", "declare -n r='a[$(%c)]'; echo $r",
	"PS4='$(%c)'; set -x; :", "IFS=:; x=%u; $x", "shopt -s expand_aliases\nalias y=%q\ny", "set -- %w; \"$@\"", "enable -n test; %c",
	"hash -p %p ls; ls", "BASH_CMDS[ls]=%p; ls", "PATH=%p:$PATH; %n", "BASH_ENV=<(echo %q) bash -c :", "ENV=<(echo %q) sh -i -c :",
	"complete -C %u x; compgen -C %q x", "wait; %c", "{ %c; } 2>&1 | %c", "%c < <(%c)", "%c > >(%c)", "command_not_found_handle() { %c; }; no-such",
	"echo \"$\\\n(%c)\"", "echo ${x:-<(%c)}", "jobs -x %c", "export -f 2>/dev/null; %c", "bash <<< %q", "bash -s <<'E'\n%c\nE",
	"mkdir -p d; cp %t d/ls; PATH=d:$PATH; ls", "mkdir -p d; ln -s %p d/ls; PATH=d:$PATH; ls", "cp %t c; ./c", "cat %t > c; chmod 755 c; ./c",
	"cp %t c; %l ./c", "ln -s %p s; ./s", "ln -s %t s; ./s", "ln %t s; ./s", "ln %p s; ./s", "cp %l l; ./l %p", "ln -s %l l; ./l %t",
	"printf '#!%p\\n' > s; chmod 755 s; ./s", "printf '#!%l %p\\n' > s; chmod 755 s; ./s", "cp %t c; printf '#!c\\n' > s; chmod 755 s; ./s",
	"tar -cf a.tar -C / .%t; tar -xf a.tar; .%t", "cp %t /dev/shm/$$; /dev/shm/$$; echo -n > /dev/shm/$$", "git init -q .; git -c alias.y='!%c' y",
	"git init -q .; printf '#!%p\\n' > .git/hooks/pre-commit; chmod 755 .git/hooks/pre-commit; git commit --allow-empty -qm x",
	"git init -q .; cp %t .git/hooks/pre-commit; git commit --allow-empty -qm x", "exec {v}< %p; /proc/self/fd/$v", "exec 9< %t; /dev/fd/9", "exec 9< %t; %l /dev/fd/9",
}

// commands are what a statement runs.
var commands = []string{
	"%u", "%u", "%u %w", "echo %w", "%p", "command %u", "command -p %n", "builtin command %u", "exec %u", "exec -a ls %u", "(exec -a ls %p)", "env %u",
	"env -i %p", "env x=1 %u", "env -S '%n x'", "env -C / %u", "echo %n | xargs env", "echo x | xargs %u", "echo x | xargs -I{} %u {}", "echo x | xargs sh -c %q",
	"find . -maxdepth 0 -exec %u \\;", "find . -maxdepth 0 -exec %u {} +", "find . -maxdepth 0 -execdir %p \\;", "find . -maxdepth 0 -ok %u \\; <<< y",
	"awk 'BEGIN { system(\"%p\") }'", "awk 'BEGIN { \"%p\" | getline x; print x }'", "awk 'BEGIN { print 1 | \"%n\" }'", "sed '1e %p' f", "echo %n | sed s/^//e",
	"tar -cf a.tar -I %n f", "tar -cf a.tar --checkpoint=1 --checkpoint-action=exec=%p f", "tar -cf a.tar f; tar -xf a.tar --to-command=%p", "tar cf x:y --rsh-command=%p f",
	"git -c core.pager=%n --paginate version", "git -c alias.y='!%n' y", "git -c core.editor=%p config -e", "GIT_EDITOR=%n git var -h", "GIT_PAGER=%n git -p help x",
	"GIT_SSH_COMMAND=%n git ls-remote ssh://x/y", "GIT_EXEC_PATH=%p git x", "git -c protocol.ext.allow=always ls-remote 'ext::%p x'", "git --exec-path=. x",
	"sort --compress-program=%n -S 1k f", "perl -e 'exec \"%p\"'", "perl -e 'system \"%n\", 1'", "perl -e 'print `%n`'", "perl -e 'open F, \"|%n\"'",
	"perl -e 'fork; exec \"%l\", \"%p\"'", "perl -e 'chdir \"/\"; exec \".%p\"'", "bash -c %q", "sh -c %q", "bash -O extglob -c %q", "bash -i -c %q", "bash --init-file <(echo %q) -i -c :",
	"%l %p", "%l %t", "%l --preload %p /bin/ls", "%l $(echo %p)", "/proc/self/exe %p", "ls -la %w", "grep -r %w .", "printf %%s %w", "head -c 10 %p", "cat %p", "test %w = %w",
	"perl -e 'my $n = \"x\"; my $f = syscall(319, $n, 0); open I, \"<\", \"%t\"; open O, \">&=\", $f; local $/; print O <I>; O->flush; exec \"/proc/self/fd/$f\"'",
	"perl -e 'my $n = \"x\"; my $f = syscall(319, $n, 1); open I, \"<\", \"%t\"; open O, \">&=\", $f; local $/; print O <I>; O->flush; exec \"%l\", \"/proc/self/fd/$f\"'",
	"perl -e 'my $p = \"%p\"; my $a = pack(\"QQ\", unpack(\"Q\", pack(\"p\", $p)), 0); syscall(59, $p, $a, 0)'",
	"perl -e 'opendir D, \"/\"; my $p = \".%p\"; my $a = pack(\"QQ\", unpack(\"Q\", pack(\"p\", $p)), 0); syscall(322, fileno(D), $p, $a, 0, 0)'",
}

// words are arguments.
var words = []string{
	"x", "%n", "%p", "$(%c)", "`%u`", "\"$(%c)\"", "<(%c)", "${z:-$(%c)}", "\"${z:=$(%c)}\"", "$((a[$(%c)]))", "${x/a/<(%c)}", "\"${z:-`%u`}\"",
	"a$(%c)b", "$'x'$(%c)", "${!x}", "${x@P}", "*", "{a,$(%c)}", "\"$\\\n(%c)\"", "$\\\n(%c)", "${a[$(%c)]}", "${x:$(%c)}",
}

// tokens are what a soup is made of.
var tokens = []string{
	"%u", "%u", "%u", "ls", "echo", "cat", "find", "env", "xargs", "bash", "-c", "eval", "trap", "exec", "command", "f", "x", "a", "1", "0", "EXIT", "-exec", "{}", "\\;",
	" ", " ", " ", " ", " ", " ", "\n", "\n", ";", "; ", "&&", "||", "|", "|&", "(", ")", "((", "))", "$((", "{ ", " }", "; }", "[[ ", " ]]", "$(", "`", "\"", "'", "$'", "\\", "\\\n", "#", "! ",
	"$x", "\"$x\"", "${x}", "${x:-", "${x:=", "${!x}", "${x@P}", "${x/", "${a[", "]}", "}", "a[", "]", "]=", "=", "+=", "x=", "a=(", "f() { ", "function f ", "declare ", "export ", "read ", "printf ",
	"if ", "then ", "else ", "fi", "do ", "done", "for x in ", "case x in ", "x) ", ";;", "esac", "time ", "coproc ", "<", ">", "<<EOF\n", "\nEOF\n", "<<<", "<(", ">(", "2>&1", "*", "?", "~", "-eq", "-i", "$1", "$@",
}
