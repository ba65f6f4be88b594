package participanttest_test

import (
	"os"
	"testing"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
)

// A whole test of an adapter. Here the adapter is Memory; yours is a database or a directory, and open
// and read reach it as your users do.
func Example() {
	store := participanttest.NewStore("shelf") // yours: a directory of the test, a table, a topic

	target := func(address string) participanttest.Target {
		return participanttest.Target{
			// Another value over the same data, as a new process has it.
			Process: func(testing.TB) participant.Resource { return store.Process() },
			// One record, by your branch's own method.
			Write: func(t testing.TB, b participant.Branch, record string) {
				if err := b.(*participanttest.MemoryBranch).Write(record); err != nil {
					t.Fatal(err)
				}
			},
			// What readers see.
			Read: func(testing.TB) []string { return store.Records() },
			// Where a process that is to be killed finds it. Memory can't be found by another process.
			World: address,
			// With a network, errors are injected by the dial function:
			//	Stepped: func(t testing.TB, at func(step string) error) participant.Resource {
			//		return mine.Open(mine.Config{Dial: participanttest.StepDialer(nil, at)})
			//	},
		}
	}

	// func TestMain(m *testing.M)
	_ = func(m *testing.M) {
		participanttest.Child(func(_ testing.TB, world string) participanttest.Target { return target(world) })
		os.Exit(m.Run())
	}

	// func TestConformance(t *testing.T)
	_ = func(t *testing.T) {
		cert := participanttest.Run(t, participanttest.Kit{
			New: func(testing.TB) participanttest.Target { return target("") }, // yours: one that is empty each time
		})
		// All that is not certified today, by name of the check; anything more fails the test.
		cert.Require(t, "a process killed at any point loses nothing")
	}
}
