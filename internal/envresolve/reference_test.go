package envresolve

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// The reference implementations follow the specification step by step, slowly, and share nothing with the
// code that they check.

type refVar struct {
	value   string
	source  Source
	missing bool
}

// reference is the environment by the specification's four steps; ok is false where an error is due.
type reference struct {
	in       Input
	internal func(string) bool
	values   map[string]string // what references find
	env      map[string]refVar
	stripped map[string]bool
}

var nameRule = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func referenceResolve(in Input, image []string, internal func(string) bool) (result Resolved, ok bool) {
	r := &reference{in: in, internal: internal, env: map[string]refVar{}, stripped: map[string]bool{}}
	layers := r.layers()
	if !r.valid(layers) {
		return Resolved{}, false
	}
	r.makeBase(image, layers)
	r.removeBlocked()
	for _, layer := range layers {
		r.apply(layer)
	}
	if !r.trusted() {
		r.removeBlocked()
	}
	return r.result()
}

func (r *reference) layers() []Layer {
	var layers []Layer
	if r.in.Default != nil && !(r.in.Named != nil && r.in.Named.Name == r.in.Default.Name) {
		layers = append(layers, Layer{Source: "Default", Vars: r.in.Default.Vars})
	}
	layers = append(layers, Layer{Source: "Skill", Vars: r.in.Skill})
	if r.in.Named != nil {
		layers = append(layers, Layer{Source: "Environment", Vars: r.in.Named.Vars})
	}
	return append(layers, Layer{Source: "Call", Vars: r.in.Call.Vars})
}

func (r *reference) trusted() bool {
	brings := r.in.Named != nil || r.in.Call.WorkingDir != "" || len(r.in.Call.Vars) != 0
	inEffect := r.in.Named != nil || r.in.Default != nil
	return inEffect && (r.in.TrustedRequested || !brings)
}

func (r *reference) valid(layers []Layer) bool {
	for _, layer := range layers {
		size := 0
		for _, v := range layer.Vars {
			size += len(v.Name + v.Value)
			bad := !nameRule.MatchString(v.Name) || strings.ContainsRune(v.Value, 0) || v.Ref != "" && v.Value != ""
			if bad || v.Ref != "" && layer.Source == "Call" {
				return false
			}
		}
		if size > 131072 {
			return false
		}
	}
	return !slices.Contains(r.in.Blocklist, "")
}

func (r *reference) makeBase(image []string, layers []Layer) {
	minimal := r.in.Named != nil && r.in.Named.InheritMinimal ||
		r.in.Named == nil && r.in.Default != nil && r.in.Default.InheritMinimal
	r.values = map[string]string{}
	for _, kv := range slices.Backward(image) {
		name, value, found := strings.Cut(kv, "=")
		if !found || strings.ContainsRune(kv, 0) {
			continue
		}
		r.values[name] = value
		keep := nameRule.MatchString(name) && len(kv) < 131072 && !r.own(name, layers)
		if keep && (!minimal || slices.Contains([]string{"HOME", "USER", "LOGNAME", "PATH"}, name)) {
			r.env[name] = refVar{value: value, source: "Image"}
		}
	}
	if _, ok := r.env["LANG"]; !ok {
		r.env["LANG"] = refVar{value: "en_US.UTF-8", source: "Image"}
	}
	r.env["TERM"] = refVar{value: "dumb", source: "Image"}
}

// own reports whether a name is one of the runner's own.
func (r *reference) own(name string, layers []Layer) bool {
	for _, layer := range layers {
		for _, v := range layer.Vars {
			if v.Ref == name {
				return true
			}
		}
	}
	return r.internal(name)
}

func (r *reference) blocked(name string) bool {
	return slices.ContainsFunc(r.in.Blocklist, func(prefix string) bool {
		return len(name) >= len(prefix) && name[:len(prefix)] == prefix
	})
}

func (r *reference) removeBlocked() {
	for name := range r.env {
		if r.blocked(name) {
			delete(r.env, name)
			r.stripped[name] = true
		}
	}
}

func (r *reference) apply(layer Layer) {
	for _, v := range layer.Vars {
		set := refVar{value: v.Value, source: layer.Source}
		if v.Ref != "" {
			value, found := r.values[v.Ref]
			set.value, set.missing = value, !found
		}
		strippedLater := r.blocked(v.Name) && !r.trusted()
		switch {
		case !strippedLater && r.own(v.Name, r.layers()):
			r.stripped[v.Name] = true
		case set.missing && v.Optional && !strippedLater:
		default:
			r.env[v.Name] = set
		}
	}
}

func (r *reference) result() (out Resolved, ok bool) {
	total := 0
	for name, v := range r.env {
		kv := name + "=" + v.value
		if v.missing || len(kv) > 131071 {
			return Resolved{}, false
		}
		total += len(kv) + 9
		out.Env = append(out.Env, kv)
		out.Vars = append(out.Vars, ResolvedVar{Name: name, Source: v.source})
	}
	for name := range r.stripped {
		out.Stripped = append(out.Stripped, name)
	}
	slices.Sort(out.Stripped)
	sortByName(&out)
	return out, total <= 1<<20
}

// referenceDir is realpath by recursion: the path's parent first, then its last name.
func referenceDir(f *fakeFS, name string, links *int) (string, bool) {
	name = strings.TrimRight(name, "/")
	if name == "" {
		return "/", true
	}
	cut := strings.LastIndexByte(name, '/')
	dir, ok := referenceDir(f, name[:cut], links)
	base := name[cut+1:]
	switch {
	case !ok:
		return "", false
	case base == ".":
		return dir, true
	case base == "..":
		return path.Dir(dir), true
	}
	full := path.Join(dir, base)
	entry, exists := f.entries[full]
	switch {
	case !exists || f.denied[full] || entry.Kind == KindOther:
		return "", false
	case entry.Kind == KindDirectory:
		return full, true
	}
	if *links++; *links > 40 || entry.Target == "" {
		return "", false
	}
	if entry.Target[0] == '/' {
		return referenceDir(f, entry.Target, links)
	}
	return referenceDir(f, dir+"/"+entry.Target, links)
}

// referenceResolveDir gives the directory or the reason.
func referenceResolveDir(f *fakeFS, req DirRequest) (dir, reason string) {
	resolve := func(name string) (string, bool) {
		if !strings.HasPrefix(name, "/") {
			name = "/" + req.ImageWorkingDir + "/" + name
		}
		return referenceDir(f, name, new(int))
	}
	dir, ok := resolve(req.WorkingDir)
	if !ok || f.locked[dir] {
		return "", "WorkingDirNotFound"
	}
	allowed := req.AllowedPaths
	if len(allowed) == 0 {
		allowed = []string{"/workspace", "/tmp", "/" + req.ImageWorkingDir}
	}
	for _, name := range allowed {
		root, ok := resolve(name)
		for at := dir; ok; at = path.Dir(at) {
			if at == root && (dir == root || root != "/" || len(req.AllowedPaths) > 0) {
				return dir, ""
			}
			if at == "/" {
				break
			}
		}
	}
	return "", "WorkingDirNotAllowed"
}
