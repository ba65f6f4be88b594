package raftnode

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// errUnknownField is in the chain of every complaint about something that a newer version wrote.
var errUnknownField = errors.New("unknown field")

// schema says which fields of a message this version knows. The generated decoder keeps what it
// does not know without a word; a replica that went on like that would differ from the others.
type schema struct {
	name   protoreflect.FullName
	fields []field // by number; numbers in storage/v1 are small
}

type field struct {
	known bool
	wire  protowire.Type
	sub   *schema        // of a message
	enum  map[int32]bool // known numbers of an enumeration
}

// schemaOf reads the schema of a message and of all that it holds from its descriptor.
func schemaOf(d protoreflect.MessageDescriptor) *schema {
	return readSchema(d, map[protoreflect.FullName]*schema{})
}

func readSchema(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]*schema) *schema {
	if s := seen[d.FullName()]; s != nil {
		return s
	}
	s := &schema{name: d.FullName()}
	seen[d.FullName()] = s
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		n := int(fd.Number())
		for len(s.fields) <= n {
			s.fields = append(s.fields, field{})
		}
		f := field{known: true, wire: wireType(fd)}
		if fd.Kind() == protoreflect.MessageKind {
			f.sub = readSchema(fd.Message(), seen)
		}
		if fd.Kind() == protoreflect.EnumKind {
			f.enum = map[int32]bool{}
			for j := range fd.Enum().Values().Len() {
				f.enum[int32(fd.Enum().Values().Get(j).Number())] = true
			}
		}
		s.fields[n] = f
	}
	return s
}

// wireType is how one value of the field is written; storage/v1 has no packed lists of numbers
// and no floating point, which a test checks.
func wireType(fd protoreflect.FieldDescriptor) protowire.Type {
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.StringKind, protoreflect.BytesKind:
		return protowire.BytesType
	default:
		return protowire.VarintType
	}
}

// check walks the encoded message and reports the first field, or value of an enumeration,
// that this version does not know, at any depth.
func (s *schema) check(b []byte) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%s: %w", s.name, protowire.ParseError(n))
		}
		b = b[n:]
		if int(num) >= len(s.fields) || !s.fields[num].known || s.fields[num].wire != typ {
			return fmt.Errorf("%w: %s has a field %d of wire type %d; this version is too old to follow", errUnknownField, s.name, num, typ)
		}
		f := &s.fields[num]
		if typ == protowire.VarintType {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return fmt.Errorf("%s field %d: %w", s.name, num, protowire.ParseError(n))
			}
			if f.enum != nil && !f.enum[int32(v)] {
				return fmt.Errorf("%w: %s field %d has the value %d; this version is too old to follow", errUnknownField, s.name, num, v)
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return fmt.Errorf("%s field %d: %w", s.name, num, protowire.ParseError(n))
		}
		if f.sub != nil {
			if err := f.sub.check(v); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}
