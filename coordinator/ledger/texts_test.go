package ledger

import (
	"reflect"
	"strings"
	"testing"
	"unsafe"
)

// Row F5. The texts of a command share memory, as they do when it was read from the log. One that is kept would keep
// the others too: positions, parts, requests, and that in each epoch and transaction that stays readable.
func TestF5_WhatIsKeptHoldsNoCommand(t *testing.T) {
	m := New()
	at := int64(1_000_000)
	var held []string // the memory of the commands
	do := func(b Body) Result {
		of, text := ofOneText(b)
		held = append(held, text)
		return apply(t, m, at, of)
	}
	apply(t, m, at, Init{Namespace: "test", Incarnation: 1}, PutPipeline{Pipeline: twoMembers("p")})
	g := do(opening("p", 0, "1")).Opened.Generation
	for n := uint64(1); n <= 3; n++ {
		do(deciding("p", Epoch{g, n}, "1", n-1))
	}
	do(proving("p", Epoch{g, 3}, "a", "out", ProvenCommitted))
	announced, committed, aborted := handID(at, 1), handID(at, 2), handID(at, 3)
	with := func(name string) []HandBranch {
		return []HandBranch{{Resource: "r", Handle: Handle{Kind: "mem", Version: 1, Identity: "one", Alias: "other", Name: name, Text: "for people"}}}
	}
	do(Announce{Txn: announced, Branches: []HandBranch{{Resource: "r"}}})
	do(Commit{Txn: announced, Branches: with("x")})
	do(Commit{Txn: committed, Branches: with("y")})
	do(Resolve{Txn: committed, Branch: BranchID{Resource: "r"}, Proof: Proof{Verdict: ProvenCommitted, Evidence: "seen"}})
	do(PresumeAbort{Txn: aborted, Why: "nobody came"})

	seen := 0
	own := func(what string, v any) {
		eachText(reflect.ValueOf(v), func(s *string) {
			seen++
			for _, text := range held {
				if within(*s, text) {
					t.Errorf("%s: %q is part of a command of %d bytes", what, *s, len(text))
				}
			}
		})
	}
	kept := m.scopes[theScope].epoch
	for _, e := range kept {
		own("epoch "+e.Epoch.String(), &e.Branches)
	}
	for id, r := range m.txns {
		own("the key of a transaction", &id)
		own("transaction "+string(id), &r.Txn)
	}
	if len(kept) != 3 || len(m.txns) != 3 || seen < 30 {
		t.Errorf("%d epochs, %d transactions and %d texts were looked at", len(kept), len(m.txns), seen)
	}
	for i := range kept[1].Branches {
		was, is := kept[0].Branches[i].ID, kept[1].Branches[i].ID
		if unsafe.StringData(was.Member) != unsafe.StringData(is.Member) || unsafe.StringData(was.Resource) != unsafe.StringData(is.Resource) {
			t.Errorf("branch %s: a second epoch has another copy of the same names", is)
		}
	}
}

// ofOneText is b with all of its texts in one piece of memory, and that.
func ofOneText(b Body) (Body, string) {
	v := reflect.New(reflect.TypeOf(b))
	v.Elem().Set(reflect.ValueOf(b))
	var all strings.Builder
	eachText(v, func(s *string) { all.WriteString(*s) })
	rest := all.String()
	eachText(v, func(s *string) { *s, rest = rest[:len(*s)], rest[len(*s):] })
	return v.Elem().Interface().(Body), all.String()
}

// eachText visits the texts that are not empty below a pointer.
func eachText(v reflect.Value, visit func(*string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			eachText(v.Elem(), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			eachText(v.Field(i), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachText(v.Index(i), visit)
		}
	case reflect.String:
		if v.Len() > 0 {
			visit((*string)(v.Addr().UnsafePointer()))
		}
	}
}

// within reports that s lies in the memory of text.
func within(s, text string) bool {
	at, from := uintptr(unsafe.Pointer(unsafe.StringData(s))), uintptr(unsafe.Pointer(unsafe.StringData(text)))
	return at >= from && at < from+uintptr(len(text))
}
