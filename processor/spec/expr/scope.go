package expr

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// Type of an expression.
type Type = cel.Type

// The types that specifications speak of.
var (
	TypeBool      = cel.BoolType
	TypeInt       = cel.IntType
	TypeUint      = cel.UintType
	TypeDouble    = cel.DoubleType
	TypeString    = cel.StringType
	TypeBytes     = cel.BytesType
	TypeTimestamp = cel.TimestampType
	// TypeDyn is known only when it runs.
	TypeDyn = cel.DynType
	// TypeList is that of top_k.
	TypeList = cel.ListType(cel.MapType(cel.StringType, cel.DynType))
)

// Is reports whether an expression of type t may come to one of the types, as far as is known beforehand.
func Is(t *Type, allowed ...*Type) bool {
	if t.Kind() == types.OpaqueKind && t.TypeName() == "optional_type" && len(t.Parameters()) == 1 {
		t = t.Parameters()[0]
	}
	for _, a := range append(allowed, TypeDyn) {
		if t.IsExactType(a) || t.Kind() == types.DynKind {
			return true
		}
	}
	return false
}

// Scope is what the expressions of one place can name. Expressions are compiled in it first, then frames
// are made, which hold what those expressions read. It is used by one goroutine.
type Scope struct {
	env     *cel.Env
	names   []string
	slots   []slot
	temps   int
	rec     recKind
	columns []Column
	// whole: some expression needs more of a JSON record than fields that are written out.
	whole bool
	// calls is where aggregates are known, in these forms.
	calls *cel.Env
	forms []Form
}

// Column is a named value of a mapped record or a result.
type Column struct {
	Name string
	Type *Type
}

// recKind is what `rec` stands for.
type recKind uint8

const (
	recUnset recKind = iota
	recNone          // there is no rec
	recJSON
	recBytes
	recString
	recMapped
)

// slot is one thing that is filled for each record.
type slot struct {
	kind slotKind
	path []string // of slotField
	col  int      // of slotColumn
}

type slotKind uint8

const (
	slotUnset slotKind = iota
	slotField          // a field of a JSON record
	slotColumn
	slotValue // the record's value
	slotKey
	slotTime
	slotTopic
	slotPartition
	slotOffset
)

// sourceNames are what every source record has besides rec.
var sourceNames = map[string]slotKind{
	"key": slotKey, "timestamp": slotTime, "topic": slotTopic, "partition": slotPartition, "offset": slotOffset,
}

// maxCost bounds what one evaluation by CEL may cost; a comparison costs about 1.
const maxCost = 100_000

func options() []cel.EnvOption {
	return []cel.EnvOption{
		cel.OptionalTypes(), ext.Strings(), ext.Encoders(), ext.Math(),
		cel.CrossTypeNumericComparisons(true), cel.EnableMacroCallTracking(),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals(), cel.ValidateComprehensionNestingLimit(2)),
	}
}

func sourceVariables() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Variable("key", cel.BytesType), cel.Variable("headers", cel.MapType(cel.StringType, cel.BytesType)),
		cel.Variable("timestamp", cel.IntType), cel.Variable("topic", cel.StringType),
		cel.Variable("partition", cel.IntType), cel.Variable("offset", cel.IntType),
	}
}

var sourceList = []string{"rec", "key", "headers", "timestamp", "topic", "partition", "offset"}

// Records is the scope of a source's records; format is "json", "bytes" or "string".
func Records(format string) (*Scope, error) {
	kind, typ := recJSON, cel.MapType(cel.StringType, cel.DynType)
	switch format {
	case "bytes":
		kind, typ = recBytes, cel.BytesType
	case "string":
		kind, typ = recString, cel.StringType
	}
	opts := append(options(), append(sourceVariables(), cel.Variable("rec", typ))...)
	return newScope(kind, slices.Clone(sourceList), nil, opts)
}

// Mapped is the scope of records that were mapped: rec has the columns and no other fields.
func Mapped(columns []Column) (*Scope, error) {
	reg, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	p := &provider{Registry: reg, columns: columns}
	opts := append([]cel.EnvOption{cel.CustomTypeProvider(p), cel.CustomTypeAdapter(reg)}, options()...)
	opts = append(append(opts, sourceVariables()...), cel.Variable("rec", cel.ObjectType(recordType)))
	return newScope(recMapped, slices.Clone(sourceList), columns, opts)
}

// Results is the scope of results: the columns by their names.
func Results(columns []Column) (*Scope, error) {
	opts := options()
	names := make([]string, len(columns))
	for i, c := range columns {
		opts = append(opts, cel.Variable(c.Name, c.Type))
		names[i] = c.Name
	}
	return newScope(recNone, names, columns, opts)
}

func newScope(rec recKind, names []string, columns []Column, opts []cel.EnvOption) (*Scope, error) {
	env, err := cel.NewEnv(opts...)
	if err != nil {
		return nil, fmt.Errorf("the environment of expressions: %w", err)
	}
	s := &Scope{env: env, names: names, rec: rec, columns: columns}
	for i := range columns { // columns are set by their index
		s.slots = append(s.slots, slot{kind: slotColumn, col: i})
	}
	return s, nil
}

// slot returns the place of something that is read, and makes one when it is new.
func (s *Scope) slot(want slot) int {
	i := slices.IndexFunc(s.slots, func(have slot) bool {
		return have.kind == want.kind && have.col == want.col && slices.Equal(have.path, want.path)
	})
	if i < 0 {
		i, s.slots = len(s.slots), append(s.slots, want)
	}
	return i
}

func (s *Scope) column(name string) int {
	return slices.IndexFunc(s.columns, func(c Column) bool { return c.Name == name })
}

// Reads lists what is read of each record, for people.
func (s *Scope) Reads() []string {
	var out []string
	for _, l := range s.slots {
		switch l.kind {
		case slotField:
			out = append(out, "rec."+strings.Join(l.path, "."))
		case slotValue:
			out = append(out, "rec")
		case slotUnset, slotColumn, slotKey, slotTime, slotTopic, slotPartition, slotOffset:
		}
	}
	slices.Sort(out)
	return out
}

// recordType names the type of a mapped record.
const recordType = "unisink.Record"

// provider tells CEL which fields a mapped record has.
type provider struct {
	*types.Registry
	columns []Column
}

func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if name == recordType {
		return types.NewTypeTypeWithParam(types.NewObjectType(recordType)), true
	}
	return p.Registry.FindStructType(name)
}

func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	if name != recordType {
		return p.Registry.FindStructFieldNames(name)
	}
	names := make([]string, len(p.columns))
	for i, c := range p.columns {
		names[i] = c.Name
	}
	return names, true
}

func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if name != recordType {
		return p.Registry.FindStructFieldType(name, field)
	}
	for i, c := range p.columns {
		if c.Name == field {
			return &types.FieldType{
				Type:  c.Type,
				IsSet: func(any) bool { return true },
				GetFrom: func(target any) (any, error) {
					f, ok := target.(*Frame)
					if !ok {
						return nil, fmt.Errorf("%T is no mapped record", target)
					}
					return refOrError(&f.slots[i])
				},
			}, true
		}
	}
	return nil, false
}

func refOrError(v *Value) (any, error) {
	r := v.toRef()
	if err, bad := r.(*types.Err); bad {
		return nil, err
	}
	return r, nil
}

var _ ref.Val = (*mapped)(nil)

// Whole reports whether some expression may read a JSON record as a whole.
func (s *Scope) Whole() bool { return s.whole }
