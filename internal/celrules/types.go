package celrules

import (
	"reflect"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/env"
	"github.com/google/cel-go/common/types"

	"toolcall.dev/operator/api/v1alpha1"
)

// The variables of an expression.
const (
	varCall        = "call"
	varAction      = "action"
	varCaller      = "caller"
	varEnvironment = "environment"
	varSession     = "session"
)

// Types of objects have a prefix, which no variable has. specType and fileType are those of a call's spec and of its file action.
const (
	objectPrefix = "toolcall."
	specType     = "ToolCallSpec"
	fileType     = "FileAction"
)

// functions are those of CEL's standard library that rules may use.
func functions() []string {
	return []string{
		"_&&_", "_||_", "!_", "_?_:_", "@not_strictly_false", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "_[_]",
		"_+_", "_-_", "-_", "_*_", "_/_", "_%_", "size", "contains", "startsWith", "endsWith", "matches",
	}
}

// macros are those of CEL's standard library that rules may use. There is no map: it makes lists.
func macros() []string { return []string{"has", "all", "exists", "exists_one", "filter"} }

// celEnv is the environment of all expressions. It never changes.
var celEnv = sync.OnceValues(func() (*cel.Env, error) {
	subset := env.NewLibrarySubset().AddIncludedMacros(macros()...)
	for _, name := range functions() {
		subset.AddIncludedFunctions(env.NewFunction(name))
	}
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	p := &provider{Registry: registry, fields: map[string]map[string]*types.Type{}}
	return cel.NewCustomEnv(
		cel.CustomTypeAdapter(registry), cel.CustomTypeProvider(p), cel.StdLib(cel.StdLibSubset(subset)),
		cel.Variable(varCall, p.object(varCall, map[string]*types.Type{
			"metadata": p.object("metadata", map[string]*types.Type{"namespace": types.StringType, "name": types.StringType, "labels": labelsType}),
			"spec":     p.typeOf(reflect.TypeFor[v1alpha1.ToolCallSpec]()),
		})),
		cel.Variable(varAction, p.object("action", actionFields(p))),
		cel.Variable(varCaller, p.object("caller", map[string]*types.Type{"username": types.StringType, "uid": types.StringType, "groups": textsType})),
		cel.Variable(varEnvironment, p.object("environment", map[string]*types.Type{"name": types.StringType, "image": types.StringType, "labels": labelsType})),
		cel.Variable(varSession, p.object("session", map[string]*types.Type{"name": types.StringType, "labels": labelsType})),
		cel.CrossTypeNumericComparisons(true), cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true),
		cel.ParserExpressionSizeLimit(maxExpression), cel.ParserRecursionLimit(maxNesting),
	)
})

var (
	textsType  = types.NewListType(types.StringType)
	labelsType = types.NewMapType(types.StringType, types.StringType)
)

func actionFields(p *provider) map[string]*types.Type {
	command := p.object("command", map[string]*types.Type{"name": types.StringType, "args": textsType, "literal": types.BoolType})
	fields := map[string]*types.Type{"args": textsType, "modules": textsType, "commands": types.NewListType(command), "network": types.BoolType}
	for _, name := range []string{"type", "tool", "binary", "command", "language", "source", "operation", "path", "destination"} {
		fields[name] = types.StringType
	}
	return fields
}

// provider knows the fields of the variables, so that an expression which names others doesn't compile.
type provider struct {
	*types.Registry
	fields map[string]map[string]*types.Type
}

// FindStructType says whether there is an object of the name.
func (p *provider) FindStructType(object string) (*types.Type, bool) {
	_, ok := p.fields[object]
	return types.NewTypeTypeWithParam(types.NewObjectType(object)), ok
}

// FindStructFieldType says of which type a field is.
func (p *provider) FindStructFieldType(object, field string) (*types.FieldType, bool) {
	t, ok := p.fields[object][field]
	return &types.FieldType{Type: t}, ok
}

func (p *provider) object(name string, fields map[string]*types.Type) *types.Type {
	name = objectPrefix + name
	p.fields[name] = fields
	return types.NewObjectType(name)
}

// unverified are the fields of a call's spec that anybody may have written where admission doesn't vouch for them. The variable caller
// has what is known.
var unverified = []string{"requestedBy", "trusted"}

// typeOf is the type of a Go type as JSON has it.
func (p *provider) typeOf(t reflect.Type) *types.Type {
	switch t.Kind() {
	case reflect.Pointer:
		return p.typeOf(t.Elem())
	case reflect.String:
		return types.StringType
	case reflect.Bool:
		return types.BoolType
	case reflect.Int, reflect.Int32, reflect.Int64:
		return types.IntType
	case reflect.Slice:
		return types.NewListType(p.typeOf(t.Elem()))
	case reflect.Map:
		return types.NewMapType(p.typeOf(t.Key()), p.typeOf(t.Elem()))
	case reflect.Struct:
		return p.structType(t)
	default:
		return types.DynType
	}
}

func (p *provider) structType(t reflect.Type) *types.Type {
	if t.PkgPath() != reflect.TypeFor[v1alpha1.ToolCallSpec]().PkgPath() {
		return types.DynType // Free JSON: a tool's arguments.
	}
	fields := map[string]*types.Type{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields[name] = p.typeOf(t.Field(i).Type)
	}
	if t == reflect.TypeFor[v1alpha1.ToolCallSpec]() {
		for _, name := range unverified {
			delete(fields, name)
		}
	}
	return p.object(t.Name(), fields)
}
