package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/unisink/unisink/internal/secrets"
)

func main() {
	all := flag.Bool("all", false, "every secret of the list must have been planted")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "secrets: name files, folders, or - for standard input")
		os.Exit(2)
	}
	if err := secrets.Scan(flag.Args(), *all, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "secrets: "+err.Error())
		os.Exit(1)
	}
}
