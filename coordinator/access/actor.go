package access

import (
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/mutant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// metaName is the message that says who asks.
var metaName = (&unisinkv1.Meta{}).ProtoReflect().Descriptor().FullName()

// metaPaths has, for each type of message, the ways to every Meta in it: almost always one field.
var metaPaths sync.Map // protoreflect.FullName -> [][]protoreflect.FieldDescriptor

// setActor writes a caller's name into a message in the place of whatever the message says. A request
// without Meta changes nothing in the log, or gets one, so that what is proposed has an actor.
func setActor(msg any, name string) {
	m, ok := msg.(proto.Message)
	if !ok || mutant.On("access/actor-from-certificate") {
		return
	}
	top := m.ProtoReflect()
	for _, path := range pathsOf(top.Descriptor()) {
		at := top
		for i, field := range path {
			if i < len(path)-1 && !at.Has(field) {
				at = nil // a message within it is missing, and its handler will say so
				break
			}
			at = at.Mutable(field).Message()
		}
		if at != nil {
			at.Interface().(*unisinkv1.Meta).Actor = actorText(name)
		}
	}
}

// actorText is a name as the log takes it.
func actorText(name string) string {
	name = strings.ToValidUTF8(name, "?")
	for len(name) > ledger.MaxInstance {
		name = strings.ToValidUTF8(name[:ledger.MaxInstance], "")
	}
	return name
}

func pathsOf(d protoreflect.MessageDescriptor) [][]protoreflect.FieldDescriptor {
	if known, ok := metaPaths.Load(d.FullName()); ok {
		return known.([][]protoreflect.FieldDescriptor)
	}
	paths := findMeta(d, nil, map[protoreflect.FullName]bool{})
	metaPaths.Store(d.FullName(), paths)
	return paths
}

// findMeta looks for Meta in single messages within messages; lists hold none.
func findMeta(d protoreflect.MessageDescriptor, way []protoreflect.FieldDescriptor, seen map[protoreflect.FullName]bool) [][]protoreflect.FieldDescriptor {
	if seen[d.FullName()] {
		return nil
	}
	seen[d.FullName()] = true
	defer delete(seen, d.FullName())
	var out [][]protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if f.Message() == nil || f.Cardinality() == protoreflect.Repeated {
			continue
		}
		here := append(way[:len(way):len(way)], f)
		if f.Message().FullName() == metaName {
			out = append(out, here)
			continue
		}
		out = append(out, findMeta(f.Message(), here, seen)...)
	}
	return out
}
