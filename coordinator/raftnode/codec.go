package raftnode

import (
	"fmt"

	"github.com/unisink/unisink/coordinator/ledger"
)

// Field numbers are those of unisink.storage.v1; a test compares every field's number, name and
// bytes with the generated code.

const (
	entryCommandsField = 1
	commandAtField     = 4
)

// encoded is a command without its time, which the leader adds when it builds the entry.
type encoded struct {
	bytes []byte
	head  int // bytes before the time
}

func (e encoded) weight() int64 { return int64(len(e.bytes) + 2*(1+10)) }

// encodeCommand writes c, less its time.
func encodeCommand(c ledger.Command) (encoded, error) {
	w := wire{writing: true, out: make([]byte, 0, 256)}
	text(&w, 1, &c.Request)
	text(&w, 2, &c.Actor)
	head := len(w.out)
	body(&w, &c.Body)
	if w.err != nil {
		return encoded{}, fmt.Errorf("encode command: %w", w.err)
	}
	return encoded{bytes: w.out, head: head}, nil
}

// appendCommand appends a command to an entry, stamped with the leader's time.
func appendCommand(entry []byte, c encoded, at int64) []byte {
	length := len(c.bytes)
	if at != 0 {
		length += 1 + sizeUvarint(uint64(at))
	}
	entry = appendUvarint(entry, entryCommandsField<<3|wireBytes)
	entry = appendUvarint(entry, uint64(length))
	entry = append(entry, c.bytes[:c.head]...)
	if at != 0 {
		entry = appendUvarint(entry, commandAtField<<3|wireVarint)
		entry = appendUvarint(entry, uint64(at))
	}
	return append(entry, c.bytes[c.head:]...)
}

// decodeEntry returns the commands of one log entry. An error means that this version does not
// know all of what the entry says, or that its bytes are damaged.
func decodeEntry(data []byte) ([]ledger.Command, error) {
	var commands []ledger.Command
	for len(data) > 0 {
		next, rest, err := nextCommand(data)
		if err == nil {
			if commands == nil {
				commands = make([]ledger.Command, 0, min(len(data)/(len(data)-len(rest))+1, 1024))
			}
			commands = append(commands, ledger.Command{})
			err = decode(next, &commands[len(commands)-1], command)
		}
		if err != nil {
			return nil, fmt.Errorf("command %d: %w", len(commands), err)
		}
		data = rest
	}
	return commands, nil
}

// nextCommand splits the first command off an entry.
func nextCommand(data []byte) (one, rest []byte, err error) {
	if data[0] != entryCommandsField<<3|wireBytes {
		return nil, nil, fmt.Errorf("%w: the entry holds something else", errUnknownField)
	}
	prefix := string(data[1:min(len(data), 11)])
	length, n := uvarint(prefix)
	if n == 0 || length > uint64(len(data)-1-n) {
		return nil, nil, fmt.Errorf("%w: the entry is cut off", errDamaged)
	}
	return data[1+n : 1+n+int(length)], data[1+n+int(length):], nil
}

func command(w *wire, c *ledger.Command) {
	text(w, 1, &c.Request)
	text(w, 2, &c.Actor)
	var traceparent string // for people who read the log; not part of the command
	text(w, 3, &traceparent)
	w.i64(commandAtField, &c.At)
	body(w, &c.Body)
}

// body is exactly one of the commands.
func body(w *wire, b *ledger.Body) {
	if w.writing {
		for i := range commands {
			if commands[i].write(w, *b) {
				return
			}
		}
		w.fail(errDamaged, "%T is no command that can be stored", *b)
		return
	}
	tag, n := uvarint(w.in)
	if n == 0 {
		w.fail(errDamaged, "a command has no body")
		return
	}
	for i := range commands {
		if tag == uint64(commands[i].field)<<3|wireBytes {
			*b = commands[i].read(w)
			return
		}
	}
	w.fail(errUnknownField, "a command's body has the field %d, which this version does not know", tag>>3)
}

// stored is how one command lies in the log.
type stored struct {
	field int
	write func(*wire, ledger.Body) bool
	read  func(*wire) ledger.Body
}

func storedAs[T ledger.Body](field int, visit func(*wire, *T)) stored {
	return stored{
		field: field,
		write: func(w *wire, b ledger.Body) bool {
			c, ok := b.(T)
			if ok {
				one(w, field, &c, visit)
			}
			return ok
		},
		read: func(w *wire) ledger.Body {
			var c T
			one(w, field, &c, visit)
			return c
		},
	}
}

// commands of the ledger, the frequent ones first.
var commands = [...]stored{
	storedAs(17, func(w *wire, c *ledger.Decide) {
		sub(w, 1, &c.Scope, scopeID)
		sub(w, 2, &c.Epoch, epoch)
		list(w, 3, &c.Votes, vote)
		w.flag(4, &c.Final)
	}),
	storedAs(19, func(w *wire, c *ledger.Commit) {
		text(w, 1, &c.Txn)
		list(w, 2, &c.Branches, handBranch)
	}),
	storedAs(21, func(w *wire, c *ledger.Resolve) {
		text(w, 1, &c.Txn)
		sub(w, 2, &c.Branch, branchID)
		sub(w, 3, &c.Proof, proof)
		w.u64(4, &c.ProvenThrough)
	}),
	storedAs(18, func(w *wire, c *ledger.Announce) {
		text(w, 1, &c.Txn)
		list(w, 2, &c.Branches, handBranch)
		w.i64(3, &c.Deadline)
	}),
	storedAs(20, func(w *wire, c *ledger.PresumeAbort) {
		text(w, 1, &c.Txn)
		text(w, 2, &c.Why)
	}),
	storedAs(15, func(w *wire, c *ledger.OpenGeneration) {
		sub(w, 1, &c.Scope, scopeID)
		num(w, 2, &c.From)
		list(w, 3, &c.Members, instance)
		text(w, 4, &c.Cause)
		text(w, 5, &c.Fingerprint)
		w.flag(6, &c.FromScratch)
		list(w, 7, &c.Identities, resourceIdentity)
	}),
	storedAs(16, func(w *wire, c *ledger.CloseGeneration) {
		sub(w, 1, &c.Scope, scopeID)
		num(w, 2, &c.Generation)
		text(w, 3, &c.Cause)
		text(w, 4, &c.Halt)
	}),
	storedAs(22, func(w *wire, c *ledger.Swept) {
		sub(w, 1, &c.Scope, scopeID)
		num(w, 2, &c.Generation)
		sub(w, 3, &c.Branch, branchID)
	}),
	storedAs(26, func(w *wire, c *ledger.Retire) { w.i64(1, &c.KeepFor); w.u32(2, &c.KeepEpochs) }),
	storedAs(10, func(w *wire, c *ledger.Init) {
		text(w, 1, &c.Namespace)
		w.u64(2, &c.Incarnation)
	}),
	storedAs(11, func(w *wire, c *ledger.PutNode) { sub(w, 1, &c.Node, node) }),
	storedAs(12, func(w *wire, c *ledger.PutPipeline) { sub(w, 1, &c.Pipeline, pipeline) }),
	storedAs(13, func(w *wire, c *ledger.DeletePipeline) {
		text(w, 1, &c.Name)
		w.u64(2, &c.Revision)
	}),
	storedAs(14, func(w *wire, c *ledger.SetDesired) {
		text(w, 1, &c.Pipeline)
		enum(w, 2, &c.From, ledger.Stopped)
		enum(w, 3, &c.To, ledger.Stopped)
	}),
	storedAs(23, func(w *wire, c *ledger.Rewind) {
		sub(w, 1, &c.Scope, scopeID)
		sub(w, 2, &c.To, epoch)
		text(w, 3, &c.Why)
	}),
	storedAs(24, func(w *wire, c *ledger.Resume) {
		sub(w, 1, &c.Scope, scopeID)
		sub(w, 2, &c.From, epoch)
		text(w, 3, &c.Why)
	}),
	storedAs(25, func(w *wire, c *ledger.Force) {
		text(w, 1, &c.Txn)
		sub(w, 2, &c.Branch, branchID)
		enum(w, 3, &c.Action, ledger.WriteOff)
		text(w, 4, &c.Why)
		sub(w, 5, &c.Scope, scopeID)
		num(w, 6, &c.Generation)
	}),
	storedAs(27, func(w *wire, c *ledger.Reshard) {
		text(w, 1, &c.Pipeline)
		w.u64(2, &c.Revision)
		w.u32(3, &c.Shards)
	}),
	storedAs(28, func(w *wire, c *ledger.RaiseFeatureLevel) { w.u32(1, &c.Level) }),
	storedAs(30, func(w *wire, c *ledger.Note) {
		text(w, 1, &c.Kind)
		text(w, 2, &c.Pipeline)
		text(w, 3, &c.What)
		text(w, 4, &c.Why)
	}),
	storedAs(29, func(w *wire, c *ledger.Pin) {
		sub(w, 1, &c.Scope, scopeID)
		sub(w, 2, &c.Epoch, epoch)
		w.flag(3, &c.Unpin)
	}),
}
