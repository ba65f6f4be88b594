// Command scan prints where the output of tests shows a secret that a test planted, and fails if one does:
//
//	go run ./internal/secrets/scan -all dist/tests.jsonl
//	bin/unisink serve 2>&1 | go run ./internal/secrets/scan -
//
// It reads what `go test -json` wrote, other files, folders of them, and standard input. It also fails if nothing was
// planted; with -all, if a secret of the list was not.
package main
