package guards

import (
	"path"
	"strings"
)

// startsNothing are programs that start no others, whatever their arguments. A program that a table names is judged by
// its rule; one that no table names counts as one that starts nothing, and the policy warns.
const startsNothing = "arch b2sum base32 base64 basename basenc bc cal cat chcon chgrp chmod chown cksum clear cmp col colrm column comm cp csplit curl cut date dd df " +
	"dir dircolors dirname dos2unix du echo egrep expand expr factor false fgrep fmt fold free getconf getent grep groups gunzip gzip head hexdump hostid hostname htop iconv id join jq yq " +
	"kill killall link ln locale logger logname look ls lsblk lscpu lsof md5sum mkdir mkfifo mknod mktemp mv nl nproc nslookup dig host numfmt od paste pathchk pgrep ping pkill pidof pinky pr printenv printf ps pwd " +
	"readlink realpath rev rm rmdir seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep stat strings strip stty sum sync tac tail tee test [ top touch tput tr tree true truncate tsort tty " +
	"type umask uname unexpand uniq unix2dos unlink unxz unzip uptime users vdir vmstat wc whatis which who whoami whereis xxd xz xzcat yes zcat zgrep zstd zstdcat bzip2 bunzip2 bzcat brotli lz4 " +
	"cd export pwd set unset read wait getopts trap shift exit return break continue : ulimit jobs fg bg times command exec nm objdump readelf size ldconfig sqlformat pandoc"

// textWarnings names what the list of programs doesn't hold where guards read the text.
func (p *Policy) textWarnings() []string {
	var unknown, interpreters []string
	for _, name := range p.binaries.names {
		rule := p.launchers.find(path.Base(name))
		switch {
		case strings.HasSuffix(name, "/"):
			unknown = append(unknown, name)
		case rule != nil && rule.interpreter || name == "source" || name == ".":
			interpreters = append(interpreters, name)
		case rule == nil && !hasField(startsNothing, path.Base(name)):
			unknown = append(unknown, name)
		}
	}
	var warnings []string
	if len(interpreters) > 0 {
		warnings = append(warnings, "binaries.enforcement is Text, and nothing holds what these listed programs start, since they run code: "+joinNames(interpreters)+": use Kernel, or remove them")
	}
	if len(unknown) > 0 {
		warnings = append(warnings, "binaries.enforcement is Text, and no table knows what these listed programs start: "+joinNames(unknown)+": use Kernel, or list them only if they start nothing")
	}
	return warnings
}
