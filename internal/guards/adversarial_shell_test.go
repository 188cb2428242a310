package guards

import (
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// usualList is what the scripts in this file may use.
var usualList = []string{"echo", "ls", "grep", "cat", "xargs", "env", "find", "bash", "wc", "head"}

// deniedScripts try to run id, or anything else that isn't listed, or to make a listed name mean something
// else. Each must be refused.
var deniedScripts = []string{
	// Chaining and nesting.
	"id", "ls; id", "ls && id", "ls || id", "ls | id", "ls |& id", "ls & id", "ls\nid", "(id)", "{ id; }", "! id", "time id", "time -p id",
	"if id; then ls; fi", "if ls; then id; fi", "if ls; then ls; elif id; then ls; else ls; fi", "if ls; then ls; else id; fi",
	"while id; do ls; done", "while ls; do id; break; done", "until id; do ls; done", "for x in a; do id; done", "for ((;;)); do id; done",
	"select x in a; do id; done", "case a in a) id;; esac", "case $(id) in a) ls;; esac", "case a in $(id)) ls;; esac", "case a in a) ls;& b) id;; esac",
	"ls | time ls", "ls | time", "ls |& time ls", "ls |\ntime ls", "ls | cat | time ls", "ls | ! cat", "ls | coproc cat", "coproc time ls", "coproc ! ls", "coproc if ls; then ls; fi", "coproc id", "coproc id export", "coproc id declare x", "coproc id > x", "coproc id if ls; then ls; fi", "coproc id [[ a ]]", "coproc id ((1))", "coproc id time ls", "coproc id ! ls", "coproc id f() { ls; }", "coproc X { id; }", "coproc PATH { ls; }", "f() { id; }", "f() { id; }; f", "function f { id; }", "f() ( id )", "f() { ls; } > $(id)",
	"echo $(id)", "echo `id`", "echo \"$(id)\"", "echo \"`id`\"", "echo $(echo $(id))", "cat <(id)", "ls > >(id)", "echo ${x:-$(id)}", "echo \"${x:-`id`}\"",
	"x=$(id)", "x=`id` ls", "x=(a $(id))", "x[$(id)]=1", "export X=$(id)", "local x=$(id)", "readonly x=`id`", "declare x=$(id)",
	"cat <<EOF\n$(id)\nEOF", "cat <<EOF\n`id`\nEOF", "cat <<EOF\n${x:-$(id)}\nEOF", "cat <<<$(id)", "cat <<< \"$(id)\"", "cat < $(id)", "ls > $(id)", "ls 2>`id`",
	"[[ -n $(id) ]]", "[[ a == $(id) ]]", "[[ a =~ $(id) ]]", "[[ a =~ ($(id)) ]]", "[[ a == @($(id)) ]]", "[ -n \"$(id)\" ]", "test `id`",
	"echo $((`id`))", "echo $(( $(id) ))", "(( $(id) ))", "for ((i=$(id);;)); do ls; done", "let x=1", "let 'a[$(id)]=1'",

	// Names that are only known at run time, or are written oddly.
	"c=id; $c", "c=ls; $c", "$(echo id)", "\"$c\"", "${c}", "$'id'", "$'\\x69d'", "$'\\151d'", "$\"id\"", "i\\d", "'i'd", "i''d", "\"i\"d", "\\id", "i$x'd'", "${x}id",
	"{id,}", "{id,x}", "i{d,e}", "i?", "i*", "[i]d", "i[d]", "~/id", "~", "/usr/bin/id", "./id", "bin/id", "../id", "\"$@\"", "$@", "$1", "$*", "${1}", "${@:1}",
	"${!c}", "${c:0:2}", "${c/x/i}", "${c^^}", "\"\" id", "'' id", "$empty id", "`` id", "$() id", "!(id)", "@(id)", "+(id)", "?(id)", "i\\\nd",
	"LS", "Ls", "ls\u00a0", "\u00a0id", "lｓ", "-", "--", "%1", "ls\t;\tid", "ls;id", "ls;\\\nid", "eval id", "eval 'id'", "eval \"id\"", "eval ls \\; id", "eval $x", "eval \"$x\"",
	"eval -- id", "eval eval id", "eval 'eval \"id\"'", "eval 'f() { id; }'", "eval $'id'", "eval `echo id`", "command eval id", "builtin eval id",

	// Builtins that run, load or rename.
	"command id", "command -p ls", "command -- id", "builtin command id", "command command id", "command $x", "builtin $x", "exec id", "exec -a ls id", "exec -c id", "exec $x",
	"source x", ". x", ". ./x", "\\. x", "'source' x", "command . x", "alias ls=id", "alias ls=id\nls", "\\alias ls=id", "unalias ls", "enable -f x y", "enable -n echo", "hash -p /bin/id ls",
	"hash -r", "bind -x '\"a\": id'", "complete -C id x", "compgen -C id", "compgen -F f", "mapfile -C id -c 1 a", "mapfile a", "readarray a", "fc -s", "fc", "history -s id", "shopt -s extglob",
	"shopt -s expand_aliases", "trap id EXIT", "trap 'id' 0", "trap -- id EXIT", "trap \"$x\" EXIT", "trap 'ls; id' INT", "trap $x EXIT", "command trap id EXIT", "trap '$(id)' EXIT", "pushd .", "typeset x=1", "kill 1", "type ls", "umask 0",
	"set -k; ls", "set -o posix", "set -o keyword", "set -o history", "set $x", "set \"$x\"", "set -t", "set -m", "set -H", "set -ek", "set +o interactive-comments", "set -$x",

	// Shadowing, and functions that may not be there.
	"ls() { id; }; ls", "ls() { cat; }; ls", "function ls { cat; }", "echo() { ls; }; echo", "cd() { ls; }", "eval() { ls; }", "command() { ls; }; command id", "[() { ls; }", "test() { ls; }",
	"id; id() { ls; }", "if ls; then id() { ls; }; fi; id", "false && id() { ls; }; id", "true || id() { ls; }; id", "(id() { ls; }); id", "{ id() { ls; }; } | cat; id", "id() { ls; } & id",
	"f() { id() { ls; }; }; id", "id() { ls; }; unset -f id; id", "id() { ls; }; unset id; id", "id() { ls; }; env id", "id() { ls; }; xargs id", "id() { ls; }; command id", "id() { ls; }; exec id",
	"id() { ls; }; bash -c id", "id() { ls; }; export -f id; bash -c id", "while false; do id() { ls; }; done; id", "case a in b) id() { ls; };; esac; id", "echo $(id() { ls; }); id",
	"f() { g; }; f; g() { ls; }", "f() { g; }; f; f() { id; }", "id() { ls; }; id() { cat; }",
	"trap id EXIT; id() { ls; }", "for id in 1; do id() { ls; }; done; id", "a/b() { ls; }; a/b", "f.g() { ls; }; f.g", "eval 'id() { ls; }'; id", "time id() { ls; }; id", "! eval 'id() { ls; }'; id",
	"if() { ls; }", "id () { ls; } | cat; id", "coproc id() { ls; }; id",

	// Variables that decide what runs, in every way to assign.
	"PATH=/tmp ls", "PATH=/tmp; ls", "PATH+=:/tmp", "export PATH=/tmp", "export PATH", "declare PATH=x", "readonly PATH=x", "local PATH=x", "declare -x PATH=x", "export 'PATH=x'", "export \"PATH=$x\"",
	"export PA\"TH\"=x", "\\export PATH=x", "'export' PATH=x", "command export PATH=x", "builtin declare PATH=x", "export {PATH,X}=y", "export $x", "export \"$x\"", "declare \"$x=1\"", "declare $x", "export PAT$h=1",
	"read PATH", "read -r PATH", "read -a PATH", "read -aPATH", "read x PATH", "read \"$x\"", "read $x", "printf -v PATH x", "printf -vPATH x", "printf -v \"$x\" y", "printf \"$x\" y z", "printf $x", "for PATH in a; do ls; done",
	"select PATH in a; do ls; done", "echo ${PATH:=x}", "echo ${PATH=x}", "getopts x PATH", "getopts x \"$y\"", "((PATH=1))", "echo $((PATH=1))", "echo $((PATH++))", "let PATH=1", "{PATH}>x", "exec {PATH}>x",
	"unset PATH", "unset $x", "unset \"$x\"", "declare -n r=PATH", "declare -n r", "local -n r=x", "declare -gn r=x", "nameref r=x", "declare +n r", "coproc BASH_ENV { ls; }", "wait -p PATH -n", "wait \"$x\" y",
	"IFS=x ls", "IFS=, read a b", "BASH_ENV=x bash -c ls", "ENV=x ls", "LD_PRELOAD=x ls", "LD_LIBRARY_PATH=. ls", "PS4='$(id)'; set -x; ls", "PROMPT_COMMAND=id", "SHELLOPTS=x bash -c ls", "BASHOPTS=x ls",
	"BASH_CMDS[ls]=/bin/id; ls", "BASH_ALIASES[ls]=id", "declare BASH_CMDS=x", "GCONV_PATH=. ls", "POSIXLY_CORRECT=1; ls", "EXECIGNORE=x ls", "GIT_SSH_COMMAND=id ls", "EDITOR=id ls", "PAGER=id ls", "env PATH=x ls",
	"env LD_PRELOAD=x ls", "env -u PATH ls", "BASH_LOADABLES_PATH=.", "GLIBC_TUNABLES=x ls", "PYTHONPATH=. ls", "echo ${BASH_CMDS[ls]:=x}", "PATH[0]=x", "PATH=(x)", "declare -a PATH=(x)", "declare 'PATH=x'", "declare -x 'LD_PRELOAD=x'",

	// Text that bash evaluates again.
	"echo ${x@P}", "echo \"${x@P}\"", "echo ${!x}", "echo \"${!x}\"", "echo ${!1}", "echo ${!x[0]}", "echo ${!x:-y}", "echo ${a[$(id)]}", "echo ${a[x]}", "echo ${a[$x]}", "echo ${x:y}", "echo ${x:$y}", "echo ${x:0:$y}",
	"echo $((x))", "echo $(($x))", "echo $((${x}))", "((x))", "((x++))", "((x=y))", "echo $((a[$(id)]))", "echo $((a[x]))", "echo $((x+1))", "echo $(( ${x:-1} ))", "echo $((\"$x\"))", "echo $(($1))", "echo $[x]", "echo $[1]",
	"x=$1; echo $((x))", "read x; echo $((x))", "x=$(cat f); ((x))", "for x in $y; do echo $((x)); done", "for x; do echo $((x)); done", "x=5; read x; echo $((x))", "if ls; then x=5; fi; echo $((x))", "(x=5); echo $((x))",
	"x=5 ls; echo $((x))", "x=a; echo $((x))", "x='a[$(id)]'; echo $((x))", "f() { echo $((x)); }; f; x=5", "x=5; printf -v x '%s' 'a[$(id)]'; echo $((x))", "x=5; declare 'x=a[$(id)]'; echo $((x))", "x=5; export \"x=$y\"; echo $((x))",
	"x=5; eval 'x=\"a[\\$(id)]\"'; echo $((x))", "x=5; trap 'x=$1' INT; echo $((x))", "x=5; x+=y; echo $((x))", "x=5; : ${x:=y}; echo $((x))", "readonly x; x=5\necho $((x))", "x=(1 a); echo $((x[1]))",
	"[[ -v $x ]]", "[[ -v a[$(id)] ]]", "[[ -v 'a[$(id)]' ]]", "[[ x -eq y ]]", "[[ $x -eq 1 ]]", "[[ 1 -lt $x ]]", "[[ \"$x\" -ge 1 ]]", "[[ a[0] -eq 1 ]]", "[[ -R $x ]]", "test -v 'a[$(id)]'", "[ -v 'a[$(id)]' ]", "[ -v \"$x\" ]",
	"test $x", "[ $x ]", "[ $x = y ]", "[ \"$x\" \"$y\" ]", "[ \"$x\" \"$y\" \"$z\" ]", "[ ! \"$x\" \"$y\" ]", "[ -n \"$a\" -a \"$b\" ]", "[ \"$@\" ]", "[ \"${a[@]}\" = x ]", "test \"$x\" 'a[$(id)]'", "[ x -a -v 'a[$(id)]' ]",
	"printf -v 'a[$(id)]' x", "printf '-va[$(id)]' x", "read 'a[$(id)]'", "read -a 'a[$(id)]'", "unset 'a[$(id)]'", "unset -v 'a[$(id)]'", "declare 'a[$(id)]=1'", "export 'a[$(id)]=1'", "getopts x 'a[$(id)]'", "wait -p 'a[$(id)]'",
	"declare -i n; n='a[$(id)]'", "declare -i n='a[$(id)]'", "declare -i n=$x", "local -i n=$1", "declare -a 'a=([$(id)]=1)'", "x='([$(id)]=1)'; declare -a a=\"$x\"", "a=(1); declare a=\"$x\"", "declare -A m; m[$(id)]=1", "RANDOM='a[$(id)]'",
	"RANDOM=$x", "a[x]=1", "a[$x]=1", "a=([x]=1)", "declare a[x]=1", "m[k]=1; declare -A m", "declare -A m; unset 'm[$(id)]'", "declare -A m; echo $((m[k]))", "echo ${#a[x]}", "echo ${a[@]:x}", "echo \"${a[@]:$x:1}\"",

	"x=5; trap 'for x in \"a[\\$(id)]\"; do ls; done' DEBUG; echo $((x))", "trap 'x=1' EXIT", "trap 'read x' EXIT", "trap 'printf -v x y' EXIT", "trap '((x=1))' EXIT", "trap 'unset x' EXIT", "x=1; { x=$y; }; echo $((x))", "x=1; f() { x=$1; }; f 'a[$(id)]'; echo $((x))",
	"x=1 y=$((1/0)); echo $((x))", "x=$((1/0)); echo $((x))", "for i in 1 2; do for i in a; do ls; done; echo $((i)); done", "for i in 1 2; do i=$y; echo $((i)); done", "f() { find $x; }; x=src; f", "bash -c 'x=1\necho $((x))'", "printf '%-5.3hhn' x", "printf '%s%n' a PATH", "printf -v a -v PATH x",
	"jobs -x id", "OPTIND='a[$(id)]'", "export SECONDS='a[$(id)]'", "for OPTIND in 'a[$(id)]'; do ls; done", "cat <<E\nx\n$(cat <<F\nE\nid\nF\n)\nE", "ls # \\\nid", "echo \"$\\\n(id)\"", "echo ${x#<(id)}", "echo \"${x-`id`}\"", "x=<(id)", "a=(<(id))", "case <(id) in x) ls;; esac", "ls > >(id)",

	// Quotes within ${...} within quotes, which bash reads as no quotes.
	"echo \"${x:-'$(id)'}\"", "cat <<EOF\n${x:-'$(id)'}\nEOF", "echo \"${x:-'`id`'}\"", "echo \"${x+'$(id)'}\"", "echo \"${x:-$'$(id)'}\"", "echo \"${x#'$(id)'}\"", "echo \"${x/a/'$(id)'}\"",
	"echo `echo \\$(id)`", "echo `echo \\`id\\``", "echo \"`echo \\\"$(id)\\\"`\"", "echo `echo '`id`'`", "cat <<EOF\na\\\nEOF\nid\nEOF", "cat <<\"E F\"\nE F\nid",

	// Shells, launchers and their options.
	"bash", "bash x", "bash -c id", "bash -c 'ls; id'", "bash -c \"$x\"", "bash -c $x", "bash -c", "bash -lc ls", "bash -ic ls", "bash --login -c ls", "bash --rcfile x -c ls", "bash --init-file x -ic ls", "bash -O extglob -c ls", "bash +O x -c ls",
	"bash -s", "bash -s ls", "bash <<< id", "bash <<EOF\nid\nEOF", "bash <<EOF\nls\nEOF", "cat x | bash", "echo id | bash", "bash < x", "bash <(echo id)", "bash -c -l id", "bash -c -- id", "bash -c \"$x\" ls", "bash -o posix -c ls", "bash --posix -c ls",
	"bash -c 'bash -c id'", "bash -c 'eval id'", "bash -c \"ls $x\"", "bash -c 'ls \"'", "bash /dev/stdin", "bash -", "bash --", "bash -k -c ls", "bash -xc 'PS4=x ls'", "env bash -c id", "find . -exec bash -c id \\;", "xargs bash -c", "xargs -I{} bash -c {}",
	"xargs -I{} bash -c 'echo {}'", "bash $x", "bash -c ls -c id | bash", "bash -x x", "env id", "env -i id", "env A=1 id", "env -S 'id'", "env -Sid", "env --split-string=id", "env --split id", "env $x", "env \"$x\" ls", "env A=$x ls", "env -u X id", "env - id",
	"env -C / id", "env --chdir=/ id", "env -- id", "env env id", "env -P x ls", "env -x", "env BASH_FUNC_x%%='() { id; }' ls", "env 'A B'=1 ls", "env ./id", "env -a x ls", "xargs id", "xargs -0 id", "xargs -n 1 id", "xargs -n1 -P2 id", "xargs -I {} {}",
	"xargs -I{} {} x", "xargs -I x lsx", "xargs $x", "xargs \"$x\"", "xargs -i id", "xargs --replace id", "xargs env", "xargs env x=1", "xargs find", "xargs -I{} find {}", "xargs --max-args=1 id", "xargs --max-a 1 id", "xargs --unknown ls", "xargs -a f id", "xargs -ta f id",
	"xargs xargs", "xargs -- id", "xargs -I ls ls", "xargs bash", "find . -exec id \\;", "find . -exec id ';'", "find . -execdir id {} +", "find . -ok id \\;", "find . -okdir id \\;", "find . -name x -exec id {} \\;", "find . -exec ls \\; -exec id \\;", "find . -exec {} \\;", "find . -exec {}x \\;",
	"find . -exec ls {} + -exec id \\;", "find . \\( -exec id \\; \\)", "find . ! -exec id \\;", "find . , -exec id \\;", "find $x", "find . $x", "find . \"$x\"", "find *", "find . -exec echo \"$x\" -exec ls \\;", "find . -exec echo $x \\;", "find . -$x", "find . -e\"xec\" id \\;", "find . -\\exec id ';'",
	"find . -exec env id \\;", "find . -exec bash -c id \\;", "find . -exec bash -c '{}' \\;", "find . {-exec,id,\\;}", "find . $'-exec' id \\;", "find . -exec $x \\;", "find . -unknown", "find -exec id \\;", "find . -name $x", "find . -name *.c -exec id \\;", "find ~/$x", "find . -exec find . -exec id \\; +",
	"set -- -exec id ';'; find . \"$@\"", "a=(-exec id ';'); find . \"${a[@]}\"", "find ./$x", "find . -newermt $x", "x=-exec; find . $x id \\;",

	// Reserved words where bash doesn't see them.
	">x time ls", "a=1 time ls", "< x if ls; then ls; fi", ">x { ls; }", "time -f x ls", "time -- ls", "\\time ls", "'time' ls", "\\if", "command time ls",

	// Redirections that end before the parser thinks, or expand twice.
	"ls >&$x", "ls >&\"$x\"", "ls >&'$(id)'", "ls <&$x", "ls 2>&1$x", "exec >&$x", "ls {f}>&$x", "ls >&\\$\\(id\\)", "ls >&\"\\$(id)\"",
	"<&-id", ">&-id", "2>&-id", "ls <&-id", "ls >&-;id", "cat 0<&-id",

	// Odd characters and odd syntax.
	"TZ=UTC\recho id", "ls\r\nid", "ls\rid", "ls\x01", "ls\x7f", "# x\\\nid", "# x\\\\\nid", "ls #\\\n\nid", "echo a\\\r\nid", "ls \\\n;id", "echo $[$(id)]", "${ id; }", "${ id;}", "${| id; }", "echo ${|id;}", "echo ${ id; }",
	"a[$(id)", "x=([$(id)]=1)", "echo \"${a[`id`]}\"", "((id))", "((a) && (id))", "((id) | (ls))", "$((id))", "echo $((id) | (ls))", "[[ a =~ ( ]]; id; [[ a =~ ) ]]", "[[ a =~ (b ]] ; id ; [[ c) ]]",
}

// allowedScripts must pass. Each is also run for real, and must not have run anything that isn't listed.
var allowedScripts = []string{
	"ls", "ls -la | grep foo && echo done", "echo hi; echo there", "ls & wait", "(ls)", "{ ls; }", "! ls", "time ls", "time -p ls", "cd /tmp && ls", "pwd; true; false; :", "if [ -f a ]; then cat a; else echo none; fi",
	"for f in *; do echo \"$f\"; done", "for i in 1 2 3; do echo $i; done", "while read -r line; do echo \"$line\"; done < /dev/null", "case $x in a|b) echo 1;; *) echo 2;; esac", "echo $(ls)", "echo `ls`", "echo \"$(ls | wc -l)\"",
	"f() { ls; }; f", "f() { echo \"$1\"; }; f a b", "function f { ls; }; f", "function f() { ls; }; f", "f() { local x=1; echo $x; }; f", "f() { f; }; echo", "my-func() { ls; }; my-func",
	"f() { ls; }\ng() { f; }\ng", "set -e\nf() { ls; }\nf", "set -euo pipefail; f() { ls; }; f", "x=1; echo $x", "x=\"a b\"; echo \"$x\"", "export FOO=bar; echo $FOO", "FOO=bar ls", "FOO=1 BAR=2 env", "readonly X=1; echo $X",
	"arr=(a b c); echo ${arr[1]}; for e in \"${arr[@]}\"; do echo $e; done",
	"x=hello; echo ${x:1:2}", "echo $? $$ $! $# \"$@\" $* $- $0 $_",
	"echo $((1+2)) $((3*4)) $((10#08)) $((1<2?3:4)) $((0x1f))", "i=0; i=$((i+1)); echo $i", "i=0\nwhile [ $i -lt 3 ]; do\n  echo $i\n  i=$((i+1))\ndone", "for ((i=0;i<3;i++)); do echo $i; done", "i=0; while (( i < 3 )); do echo $i; (( i++ )); done", "i=0; while (( i < 3 )); do (( i += 1 )); done; echo $i",
	"n=5; [[ $n -gt 3 ]] && echo big", "n=5; if [[ n -gt 3 ]]; then echo big; fi", "n=5; [ $n -gt 3 ] && echo big", "[ \"$x\" -eq 1 ] 2>/dev/null || echo no", "for i in {1..3}; do echo $((i*2)); done", "for i in 1 2 3; do echo $((i*2)); done",
	"x=abc; echo $((${#x}+1)) $(($#+1)) $(($?))",
	"[[ -f a && ! -d b || -n $x ]]; echo $?", "[[ $x == a* ]] || echo no", "[[ $x =~ ^[a-z]+$ ]] || echo no", "[[ a =~ ^(a|b)$ ]] && echo yes", "[[ -z \"$x\" ]] && echo empty", "[ -n \"$x\" ] || echo e", "[ \"$x\" = y ] || echo n", "[ ! -f x ] && echo n", "test -d /tmp && echo d",
	"[ -n \"$x\" -a -n \"$y\" ] || echo n", "arr=(a b); [ ${#arr[@]} -gt 1 ] && echo ${#arr[@]}", "n=$(ls | wc -l); [ \"$n\" -gt 0 ] && echo \"$n\"", "ls > /dev/null 2>&1 & wait $!", "[ \"$x\" = a -o \"$y\" = b ] || echo n", "[ $# -eq 0 ] && echo none", "[ $? -eq 0 ] && echo ok", "[ ! \"$x\" = y ] && echo n", "[ -f a -a -r b ] || echo n", "[[ $? -eq 0 ]] && echo ok",
	"cat <<EOF\nhello $x\nEOF", "cat <<'EOF'\n$(id) `id` ${x:-'$(id)'}\nEOF", "cat <<\"EOF\"\n$(id)\nEOF", "cat <<EOF\n$(ls)\nEOF\necho after", "cat <<< \"$x\"", "cat <<EOF\n\\$(id) \\`id\\`\nEOF",
	"ls > out.txt 2>&1; cat < out.txt >> all.txt; cat out.txt all.txt", "ls &> /dev/null", "exec 3> f; echo x >&3; exec 3>&-", "echo a >&2", "ls 2>/dev/null | cat",
	"echo '$(id)'", "echo \"\\$(id)\"", "echo \\$\\(id\\)", "echo 'a;id'", "echo \"a;id|id&id\"", "echo a\\;id", "echo \"`echo x`\"", "echo {a,b}{1..3}", "echo ~", "echo $'a\\tb'", "echo a#b # id", "# id", "ls # ; id", "echo \"# \" id", "echo id",
	"env", "env A=1 ls", "env A=\"$x\" ls", "env -i ls", "env -u X ls", "env -- ls", "env -i A=1 B=2 ls -l", "ls | xargs echo", "ls | xargs -n1 echo", "ls | xargs -0 cat", "ls | xargs -I{} echo {} x", "ls | xargs -n 2 -P 2 ls -d", "echo a | xargs", "xargs -d '\\n' echo < /dev/null", "echo x | xargs env echo",
	"echo a | xargs -I{} bash -c 'echo \"$1\"' _ {}", "echo a | xargs bash -c 'echo \"$@\"' _",
	"find . -name '*.go'", "find . -type f -exec cat {} +", "find . -exec echo {} \\;", "find . -name \"$x\" -print", "find \"./$x\" -maxdepth 1", "find . -name \"*.$x\"", "find . -type f | xargs grep -l x", "find /tmp/ -maxdepth 1 -newer x -o -print0", "find . -exec bash -c 'echo \"$1\"' _ {} \\;", "find \"$HOME\" -maxdepth 0", "find ~ -maxdepth 0",
	"find . \\( -name a -o -name b \\) ! -type d -print", "d=src; find \"$d\" -type f", "d=src; find $d -type f", "find . -fprintf x %p", "find ./* -maxdepth 0",
	"bash -c ls", "bash -c 'ls | grep x; echo done'", "bash -c 'echo \"$1\"' _ \"$x\"", "bash -ec 'ls'", "bash -euo pipefail -c 'ls'", "bash -c -- ls",
	"trap 'echo bye' EXIT", "trap - INT", "trap '' TERM", "cleanup() { echo bye; }; trap cleanup EXIT; ls", "command ls", "command -v id", "command -v id >/dev/null && echo yes", "exec ls", "command echo x",
	"set -e; ls", "set -x; ls", "set -o pipefail; ls | cat", "set -- a b; echo $1", "set -- \"$@\"; ls", "set +e; ls", "read -r x <<< hi; echo \"$x\"", "read -r a b; echo $b", "read -p prompt -t 1 x < /dev/null", "printf '%s\\n' \"$x\"", "printf -v y '%s' a; echo $y", "printf 'a\\n'",
	"while getopts ab: o; do case $o in a) echo a;; b) echo \"$OPTARG\";; esac; done", "shift 2>/dev/null; return 0 2>/dev/null; ls", "ls & pid=$!; wait $pid", "sleepless() { :; }; sleepless & wait", "for x; do echo $x; done", "until true; do ls; done",
	"x='$(id)'; echo $x \"$x\"", "echo \"${arr[*]}\"", "echo ${@:1:2}", "echo \"${@}\"", "f() { ls; }; f | cat; echo $(f)", "a=1 b=2; echo $a$b",
	"ls $(echo -l)", "ls -- \"$x\"", "grep -r \"$x\" .", "grep -E 'a|b' < /dev/null", "cat /dev/null | grep -c x || true", "echo é ü 日本 | cat", "f() { echo ${x/a/b}; }; f; id() { ls; }\nid", "LC_ALL=C ls", "LC_ALL=C.UTF-8 echo é",
}

// outsideTheLanguage are harmless scripts that are refused, by what the part of bash that is judged leaves out.
var outsideTheLanguage = map[string][]string{
	"process substitution":                               {"cat <(ls)", "cat < <(ls)"},
	"functions in anything but the plain form":           {"f() (ls); f", "if true; then f() { ls; }; f; fi", "(f() { ls; }; f)", "f() { ls; } 2>/dev/null; f"},
	"a function is called before its definition":         {"main() { helper; }\nhelper() { echo x; }\nmain", "f() { g; }; g() { ls; }; f"},
	"declare and its kin with attributes":                {"declare -r Y=2; echo $Y", "declare -a arr=(1 2 3); echo \"${arr[@]}\" ${#arr[@]} ${arr[0]}", "declare -A m; m[k]=v; echo \"${m[k]}\"", "declare -A m=([a]=1 [b]=2); echo ${m[a]}", "declare -i n=5; echo $n"},
	"an expansion evaluates text":                        {"arr=(); arr+=(x); echo \"${!arr[@]}\"", "echo ${!FOO*} ${!FOO@}"},
	"an expansion assigns or evaluates text":             {"echo ${x:-default} ${x:=y} ${#x} ${x#a} ${x%%b} ${x/a/b} ${x//a/b} ${x^^} ${x,,} ${x:+z}", "echo ${x@Q} ${x@U}"},
	"a value that no plain assignment at top level sets": {"f() { local n=0; n=$((n+1)); echo $n; }; f", "a=(1 2 3); echo $((a[0]+a[1]))"},
	"a name that bash sets itself":                       {"SECONDS=0; echo $SECONDS", "RANDOM=42; echo x"},
	"-v of a test evaluates text":                        {"[[ -v x ]] || echo unset"},
	"a here-document whose lines lose their tabs":        {"cat <<-EOF\n\thi\n\tEOF"},
	"two here-documents for one command":                 {"cat <<A <<B\na\nA\nb\nB"},
	"a here-document inside a substitution":              {"echo \"$(cat <<'EOF'\nit's (fine\nEOF\n)\""},
	"a descriptor in a variable":                         {"ls {fd}>x"},
	"a backslash before a newline":                       {"echo a \\\n id"},
	"a function inside a script that is not printed":     {"bash --norc --noprofile -c 'f() { ls; }; f'"},
	"eval":    {"eval ls", "eval 'echo a; ls'", "eval \"ls -l\""},
	"builtin": {"builtin echo x"},
	"a format that is known at run time only": {"printf \"%d-$x\\n\" 1"},
	"options of unset":                        {"unset x; unset -v y"},
	"coprocesses":                             {"coproc cat; ls", "coproc { cat; }; ls"},
	"quotes inside of ${…}":                   {"echo \"${x:-'plain'}\"", "echo \"${x:-\"a b\"}\"", "echo ${x:-'$(id)'}"},
}

// harmlessAsPrinted would run id as they are written: bash gives up the line in which an expansion fails. Printed, each
// statement has a line of its own.
var harmlessAsPrinted = []string{
	"echo $((1/0)); id() { ls; }\nid",
	"readonly q=1; q=2; id() { ls; }\nid",
	"echo $((1/0)); x=5\necho $((x))",
}

func allowlistedPolicy(t testing.TB, names ...string) *Policy {
	t.Helper()
	enabled := true
	policy, err := Compile(&v1alpha1.ExecutionPolicySpec{
		Access:   v1alpha1.AccessOpen,
		Shell:    &v1alpha1.ShellPolicy{Enabled: &enabled, Commands: v1alpha1.ShellAllowlisted},
		Binaries: &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Enforcement: v1alpha1.EnforcementText, Allowed: names},
	})
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func checkScript(policy *Policy, script string) *Denial {
	return policy.Check(Input{Action: &Action{Type: v1alpha1.ActionShell, Command: script}})
}

func TestScriptsThatTryToRunMoreThanIsListedAreRefused(t *testing.T) {
	t.Parallel()
	policy := allowlistedPolicy(t, usualList...)
	for _, script := range deniedScripts {
		denial := checkScript(policy, script)
		if denial == nil {
			t.Errorf("allowed: %q", script)
			continue
		}
		if denial.Reason != v1alpha1.ReasonShellCommandNotAllowed && denial.Reason != v1alpha1.ReasonShellNotParseable {
			t.Errorf("%q: reason %s", script, denial.Reason)
		}
	}
}

func TestOrdinaryScriptsAreAllowed(t *testing.T) {
	t.Parallel()
	policy := allowlistedPolicy(t, usualList...)
	for _, script := range allowedScripts {
		if denial := checkScript(policy, script); denial != nil {
			t.Errorf("refused: %q: %s: %s", script, denial.Reason, denial.Message)
		}
	}
}

func TestScriptsOutsideOfTheLanguageAreRefused(t *testing.T) {
	t.Parallel()
	policy := allowlistedPolicy(t, usualList...)
	for reason, scripts := range outsideTheLanguage {
		for _, script := range scripts {
			if checkScript(policy, script) == nil {
				t.Errorf("%q passes, although it has %s", script, reason)
			}
		}
	}
}
