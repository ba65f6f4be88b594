// Package ledger is the fenced record of decisions: a pure function from (state, command) to
// (state, result, effects). It has no clock, no I/O, no goroutine and no map iteration order, and
// imports the standard library only, so that every node that applies the same log holds the same
// state, and every failure can be run again from its commands.
//
// # States and transitions
//
// A scope goes from generation to generation. A generation is open, then closed for ever; while it
// is open its epochs are decided one after the other. A decided epoch ends resolved.
//
//	            OpenGeneration(from = newest, closed)
//	  (none) ────────────────────────────────────────────▶ OPEN g, final = 0
//	                                                         │  ▲
//	                 Decide(g, n = final+1, all votes)       │  │ final = n,
//	                                                         ╰──╯ restore point = g.n
//	                                                         │
//	     CloseGeneration, or a heuristic proof               ▼
//	  HALTED ◀──────── halt, 10 barren in a row ───────── CLOSED g, final(g) fixed,
//	    │                                                    │    a debt per (member, resource)
//	    ╰── Resume ──▶ OpenGeneration(from = g) ◀────────────╯
//	                   starts at the restore point; Rewind sets that back to a kept one
//
//	epoch:     decided ── Resolve, proven through, Force ──▶ resolved ── Retire ──▶ final(g) says it
//	debt:      owed ── Swept, Force(write-off) ──▶ paid
//	by hand:   (unknown) ── Announce ──▶ pending ── Commit ──▶ committed ── Resolve ──▶ resolved ── Retire ──▶ below the floor
//	               ╰──────── Commit, PresumeAbort ───────────▶ aborted   ── Resolve ──▶ resolved ── Retire ──▶ below the floor
//	pipeline:  running ⇄ (stopping | draining) ─▶ stopped ─▶ running; written before any final epoch
//
// # Invariants
//
// Apply keeps them, [Machine.Check] finds the first that does not hold, [Load] refuses such a state:
//
//   - one verdict per transaction: what was committed or aborted once is never the other;
//   - the decided epochs of a generation are 1..final, without gaps; final of a closed one is fixed;
//   - a decided epoch holds one vote of every member of its generation, from the instance it names;
//   - only the newest generation of a scope is open, and a halted scope has none open;
//   - generations come from one counter, belong to one scope each and are never used again;
//   - nothing is resolved without a proof or an operator's act, and the first proof stands;
//   - nothing is retired before it is resolved, and no part is given up that a restore point names;
//   - no hand-run transaction in doubt lies below the floor;
//   - the digest kept by Apply is the digest of the state.
//
// # Repeats and refusals
//
// Every command names the state it expects. A pipeline and a scope keep the request that last
// changed them, so its repeat gets its answer; decisions, proofs and verdicts are found by what they
// are about. A refusal changes nothing and is not remembered: the same command may succeed later.
package ledger
