// Command failures prints, for every row of docs/failures.md, the tests that carry the row in their name and
// passed in a run, and fails if a row has none. It reads what `go test -json` wrote:
//
//	go run ./internal/failures docs/failures.md dist/tests.jsonl
//
// A row of later work stands in the catalogue's second table with its reason. When a test of such a row
// passes, the row has to move.
package main
