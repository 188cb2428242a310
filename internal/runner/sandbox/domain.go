package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// UnavailableError says that the node can't hold the rules. Nothing may be executed then.
type UnavailableError struct {
	// Missing is what the node doesn't give, as a phrase.
	Missing string
}

func (e *UnavailableError) Error() string { return "the node has no " + e.Missing }

// Domain is what one call's processes will be held to, ready to be entered.
type Domain struct {
	rules *rules.Rules
	// programs is nil when any program may be executed.
	programs *programs
	ruleset  *ruleset
	// writePaths are the directories and devices that can be written to, without links, when the rules restrict that. They are
	// looked up once: what counts as writable is what is granted.
	writePaths []string
	// way is how the node holds it. Without Landlock there is no ruleset.
	way rules.Way
	// unheld are the listed multi-call programs whose applets nothing holds.
	unheld []string
	// mayTrace says that a command can be held until the thread that started it has ended.
	mayTrace bool
}

// Prepare resolves rules in this pod for a command with a PATH, and makes the command's domain. The error is
// an UnavailableError when the node lacks what the rules need.
func Prepare(r *rules.Rules, path string, support rules.Support) (*Domain, error) {
	way, missing := support.WayFor(r)
	if missing != "" {
		return nil, &UnavailableError{missing}
	}
	if auditArch == 0 {
		return nil, &UnavailableError{"architecture that the filter is made for"}
	}
	d := &Domain{rules: r, way: way, mayTrace: support.Trace}
	if err := d.prepare(path); err != nil {
		d.Close()
		return nil, fmt.Errorf("prepare the command's domain: %w", err)
	}
	return d, nil
}

func (d *Domain) prepare(path string) (err error) {
	handled := uint64(accessRefer)
	if d.rules.Programs != nil {
		handled |= accessExecute | accessRead | accessContent
	}
	if d.rules.ReadPaths != nil {
		handled |= accessRead
	}
	if d.rules.WritePaths != nil {
		handled |= accessWrite
	}
	var handledNet uint64
	if d.rules.Connections && !d.way.MakesAllSockets() {
		// No rule grants it: a socket that is put in another's place connects nowhere.
		handledNet = unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if d.way.Landlock > 0 {
		if d.ruleset, err = newRuleset(known(handled, d.way.Landlock), handledNet, d.way.Landlock); err != nil {
			return err
		}
	}
	if d.rules.WritePaths != nil {
		d.writePaths = roots(slices.Concat(d.rules.WritePaths, devicePaths))
	}
	if d.rules.Programs != nil {
		d.programs, err = resolve(d.rules, d.writePaths, path, func(f *openFile) error {
			return d.ruleset.allow(f.fd, f.isDir(), accessExecute|accessRead)
		})
		if err != nil {
			return err
		}
	}
	if d.ruleset == nil {
		return nil
	}
	if err := d.grant("/", accessRefer); err != nil {
		return err
	}
	if err := d.grantReads(path); err != nil {
		return err
	}
	return d.grantWrites()
}

// Close gives up a domain that isn't entered any more.
func (d *Domain) Close() {
	if d.ruleset != nil {
		d.ruleset.file.Close()
	}
}

// NeedsStage reports whether the domain is entered in a stage: a process that starts another one waits until that has
// executed its program, and can't answer for it meanwhile. Nor can a thread be kept from a command that can't be held.
func (d *Domain) NeedsStage() bool { return d.programs != nil || d.NeedsHold() && !d.mayTrace }

// NeedsHold reports whether the command must not run before the thread that entered the domain has ended. Where the domain
// doesn't keep signals inside, the command may signal that thread in any case.
func (d *Domain) NeedsHold() bool { return d.way.Landlock >= rules.ABIScopes }

// Enter puts the calling thread and what it starts into a domain that needs no stage. The thread must be used for
// nothing but a start afterwards, and, if the domain NeedsHold, end before the command runs: see Hold. The caller stops the process, also when the
// start fails.
func (d *Domain) Enter(denyNetwork bool, n *Network) (*Process, error) {
	if d.NeedsStage() {
		return nil, errNeedsStage
	}
	options, err := d.filterOptions(denyNetwork, n)
	if err != nil {
		return nil, err
	}
	ruleset, p := d.ruleset.descriptor(), &Process{domain: d}
	if !options.needsGate() {
		_, err := restrictThread(ruleset, options)
		return p, err
	}
	w := startWorkers() // of threads that aren't restricted
	defer close(w)
	fd, err := restrictThread(ruleset, options)
	if err == nil {
		p.gate, err = newGate(listener(fd), nil, n, options.allSockets, nil, w)
	}
	return p, err
}

var errNeedsStage = errors.New("a domain that lists programs, and any where nothing can be traced, is entered in a stage")

// errNoConnections can't be the call's mistake: whoever prepares the domain knows what decides.
var errNoConnections = errors.New("the domain holds connections, and nothing decides about them: set Network.Connections")

func (d *Domain) filterOptions(denyNetwork bool, n *Network) (filterOptions, error) {
	o := filterOptions{denyNetwork: denyNetwork, noTruncate: d.way.ListsTruncate(d.rules)}
	o.programs, o.traced = d.programs != nil && !d.way.Trace, d.programs != nil && d.way.Trace
	if denyNetwork || !d.rules.Connections {
		return o, nil
	}
	if n == nil || n.Connections == nil {
		return o, errNoConnections
	}
	o.network, o.udp, o.allSockets = true, n.UDP, d.way.MakesAllSockets()
	return o, nil
}

// restrictThread puts the calling thread and what it starts into the domain of a ruleset, and sets the filter. It returns
// the filter's listener, if the filter needs a gate.
func restrictThread(ruleset int, o filterOptions) (listener int, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("give up new privileges: %w", err)
	}
	if ruleset != noRuleset {
		if err := restrictSelf(ruleset); err != nil {
			return -1, err
		}
	}
	var flags uintptr
	if o.needsGate() {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	return install(filter(auditArch, o), flags)
}

// Rules returns the number of Landlock rules.
func (d *Domain) Rules() int {
	if d.ruleset == nil {
		return 0
	}
	return d.ruleset.count
}

// Allows reports whether a path leads to a listed program. It is a hint which of several files to start.
func (d *Domain) Allows(path string) bool {
	if d.programs == nil {
		return true
	}
	f, err := openPath(path)
	if err != nil {
		return false
	}
	defer f.close()
	return d.programs.allowed(f) != nil
}

// Isolation says which walls hold.
func (d *Domain) Isolation() *result.Isolation {
	i := &result.Isolation{
		Way:         d.way.Name(),
		LandlockABI: d.way.Landlock,
		Programs:    d.programs != nil,
		Reads:       d.way.Landlock > 0 && d.rules.ReadPaths != nil,
		Writes:      d.way.Landlock > 0 && d.rules.WritePaths != nil,
		Signals:     d.way.Landlock >= rules.ABIScopes,
	}
	if d.programs == nil {
		return i
	}
	i.NotFound = shortPaths(d.programs.notFound)
	i.Writable = shortPaths(d.programs.writable)
	i.UnheldApplets = shortPaths(d.unheld)
	var multi []string
	for _, p := range d.programs.files {
		if p.multiCall {
			multi = append(multi, p.path)
		}
	}
	slices.Sort(multi)
	i.NamesOnly = shortPaths(multi)
	return i
}

// systemPaths are what programs read beside their own files, when reading is restricted.
var systemPaths = []string{
	"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/etc", "/opt", "/dev", "/proc", "/sys",
}

// devicePaths may always be written to.
var devicePaths = []string{
	"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm",
}

// programDirs are the usual directories of programs.
var programDirs = []string{"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/games"}

// programDirNames are the names of directories that hold programs and nothing else.
var programDirNames = []string{"bin", "sbin", "games"}

// grantReads grants reading, but not of the directories of programs: what isn't listed can't be copied, or mapped by a
// loader. Their listed files were granted with their execution.
func (d *Domain) grantReads(path string) error {
	if d.ruleset.handled&accessRead == 0 {
		return nil
	}
	var hidden []string
	if d.programs != nil {
		hidden = d.hiddenDirs(path)
	}
	if d.rules.ReadPaths == nil {
		return d.grantExcept("/", hidden, accessRead)
	}
	for _, real := range roots(slices.Concat(d.rules.ReadPaths, d.rules.WritePaths, systemPaths, devicePaths)) {
		if isHidden(real, hidden) {
			continue
		}
		if err := d.grantExcept(real, hidden, accessRead); err != nil {
			return err
		}
	}
	return nil
}

// hiddenDirs are the directories of programs, without links: the usual ones, and those in PATH. One with another name
// than these have may hold a program's data as well, one that is listed hides nothing, and in one that the call can
// write to it reads what it has written.
func (d *Domain) hiddenDirs(path string) []string {
	var dirs []string
	calls := newResolver(d.rules, d.writePaths)
	for _, dir := range append(filepath.SplitList(path), programDirs...) {
		real := realPath(dir)
		if !filepath.IsAbs(dir) || slices.Contains(dirs, real) || !slices.Contains(programDirNames, filepath.Base(real)) {
			continue
		}
		listed := slices.ContainsFunc(d.programs.dirs, func(listed string) bool { return strings.HasPrefix(real+"/", listed) })
		if !listed && !calls.isWritablePath(real) {
			dirs = append(dirs, real)
		}
	}
	return dirs
}

func isHidden(path string, hidden []string) bool {
	return slices.ContainsFunc(hidden, func(dir string) bool { return isBelow(path, dir) })
}

// grantWrites grants writing, but never below /proc: another process's memory can be written there.
func (d *Domain) grantWrites() error {
	if d.ruleset.handled&accessContent == 0 {
		return nil
	}
	if d.rules.WritePaths == nil {
		return d.grantExcept("/", []string{"/proc"}, accessContent)
	}
	for _, real := range d.writePaths {
		if isBelow(real, "/proc") {
			continue
		}
		if err := d.grantExcept(real, []string{"/proc"}, accessWrite); err != nil {
			return err
		}
	}
	return nil
}

// grantExcept grants a right below a directory, but not below the hidden ones. Landlock can't take away, so that their
// siblings are granted one by one.
func (d *Domain) grantExcept(root string, hidden []string, access uint64) error {
	if !slices.ContainsFunc(hidden, func(dir string) bool { return isBelow(dir, root) }) {
		return d.grant(root, access)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil // what can't be listed stays hidden
	}
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		if entry.Type()&os.ModeSymlink != 0 || slices.Contains(hidden, path) {
			continue
		}
		if err := d.grantExcept(path, hidden, access); err != nil {
			return err
		}
	}
	return nil
}

// grant grants a right on a path without links. A path that is gone needs none. One that has become a link gets none: a call
// that runs has replaced it.
func (d *Domain) grant(path string, access uint64) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil // a path that can't be opened now can't be opened by the command
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return d.ruleset.allow(fd, st.Mode&unix.S_IFMT == unix.S_IFDIR, access)
}
