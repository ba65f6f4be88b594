package raftnode

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/unisink/unisink/coordinator/ledger"
	storagev1 "github.com/unisink/unisink/proto/unisink/storage/v1"
)

// Field numbers of storage/v1 that the proposer writes by hand; a test compares them with the
// generated descriptors.
const (
	entryCommandsField = protowire.Number(1)
	commandAtField     = protowire.Number(4)
)

var entrySchema = schemaOf((&storagev1.Entry{}).ProtoReflect().Descriptor())

// encodeCommand returns c as a storagev1.Command without its time, which the leader adds when
// it builds the entry.
func encodeCommand(c ledger.Command) ([]byte, error) {
	body := &storagev1.Command{Request: c.Request, Actor: c.Actor}
	if err := encodeBody(body, c.Body); err != nil {
		return nil, err
	}
	b, err := proto.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode command: %w", err) // a string that is not UTF-8
	}
	return b, nil
}

// appendCommand appends an encoded command to an entry, stamped with the leader's time.
func appendCommand(entry, command []byte, at int64) []byte {
	var stamp [1 + 10]byte
	time := protowire.AppendTag(stamp[:0], commandAtField, protowire.VarintType)
	time = protowire.AppendVarint(time, uint64(at))
	entry = protowire.AppendTag(entry, entryCommandsField, protowire.BytesType)
	entry = protowire.AppendVarint(entry, uint64(len(command)+len(time)))
	entry = append(entry, command...)
	return append(entry, time...)
}

// commandOverhead is the most that appendCommand adds to a command.
const commandOverhead = 1 + 10 + 1 + 10

// decodeEntry returns the commands of one log entry. An error means that this version does not
// know all of what the entry says, or that its bytes are damaged.
func decodeEntry(data []byte) ([]ledger.Command, error) {
	if err := entrySchema.check(data); err != nil {
		return nil, err
	}
	var entry storagev1.Entry
	if err := proto.Unmarshal(data, &entry); err != nil {
		return nil, err
	}
	commands := make([]ledger.Command, len(entry.GetCommands()))
	for i, p := range entry.GetCommands() {
		body, err := decodeBody(p)
		if err != nil {
			return nil, fmt.Errorf("command %d: %w", i, err)
		}
		commands[i] = ledger.Command{Request: p.GetRequest(), Actor: p.GetActor(), At: p.GetAt(), Body: body}
	}
	return commands, nil
}

// each converts a slice; nothing stays nil, since the wire does not tell empty from nil.
func each[A, B any](in []A, convert func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = convert(a)
	}
	return out
}

// some returns nil for an empty b.
func some(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
