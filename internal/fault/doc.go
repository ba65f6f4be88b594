// Package fault names the moments at which a process may die, stall or be refused.
//
// Around every durable step of ours stand two named points, one before and one after:
//
//	fault.Point("file/before-rename")
//	if err := os.Rename(staged, final); err != nil { ... }
//	fault.Point("file/after-rename")
//
// and where a test wants the step itself to fail, an injected error:
//
//	if err := fault.Err("file/rename"); err != nil { return err }
//
// Without -tags faults both are empty and cost nothing. With the tag, a plan in the
// environment moves a real process, and a hook moves code inside a test.
//
// The plan is UNISINK_FAULT, a comma-separated list of
//
//	name[@n]=crash | pause:DURATION | error
//
// where n picks the n-th time the point is reached (counted from 1, over the whole process);
// without @n the action is taken every time. crash kills the process as kill -9 would: no
// deferred call runs, nothing is flushed. pause sleeps, which is how a process outlives its
// lease. error makes Err return an error; a Point cannot return one, so naming a Point for it
// is a mistake in the plan and stops the process. A plan that cannot be read stops the
// process at the first point it reaches, for a fault test whose fault never happens proves
// nothing.
//
// A hook, set by [Set], takes the place of the plan. It may return an error (for Err), block,
// panic or call runtime.Goexit, so a test can cut a goroutine short exactly there.
//
// Names are "room/step": lower case, digits, '-', '.', '_', with a slash between the parts.
package fault
