package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/unisink/unisink/examples/sink-http/service"
	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
)

func TestMain(m *testing.M) {
	// The kit starts this test again, as a process that it kills.
	participanttest.Child(func(_ testing.TB, world string) participanttest.Target {
		url, path, _ := strings.Cut(world, " ")
		return target(settings{URL: url, Account: "test", Journal: path})
	})
	testscript.Main(m, map[string]func(){"sink-http": func() { os.Exit(run()) }})
}

func TestTheShopConforms(t *testing.T) {
	branches := 0 // as many as the kit takes
	if testing.Short() {
		branches = 200 // each is three requests, and as many syncs of the journal
	}
	cert := participanttest.Run(t, participanttest.Kit{Branches: branches, New: func(t testing.TB) participanttest.Target {
		shop := service.New()
		server := httptest.NewServer(shop)
		t.Cleanup(server.Close)
		out := target(settings{URL: server.URL, Account: "test", Journal: filepath.Join(t.TempDir(), "journal")})
		out.Read = func(testing.TB) []string { return shop.Sold() }
		if testing.Short() {
			out.World = "" // no processes
		}
		return out
	}})
	if killed := "a process killed at any point loses nothing"; !testing.Short() && !t.Failed() && !cert.Certifies(killed) {
		t.Errorf("not certified: %s", killed)
	}
}

// target is a shop that some process has opened.
func target(in settings) participanttest.Target {
	return participanttest.Target{
		World: in.URL + " " + in.Journal,
		Process: func(t testing.TB) participant.Resource {
			sink, err := newSink(in)
			if err != nil {
				t.Fatal(err)
			}
			return sink
		},
		Write: func(t testing.TB, b participant.Branch, record string) {
			if err := b.(processor.Writer).Write(t.Context(), []stream.Record{{Value: []byte(record)}}); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// What the documentation says of it.
func TestTheAdapterIsShorterThanSixtyLines(t *testing.T) {
	text, err := os.ReadFile("adapter.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n >= 60 {
		t.Fatalf("adapter.go has %d lines", n)
	}
}

// A pipeline's file names the shop, its process is killed, and everything is sold once.
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"freeport": func(ts *testscript.TestScript, _ bool, args []string) {
				for _, v := range args {
					addr, err := freeport.Loopback()
					ts.Check(err)
					ts.Setenv(v, addr)
				}
			},
			"sold": sold, "until": until,
		},
	})
}

// sold prints what the shop has sold.
func sold(ts *testscript.TestScript, _ bool, _ []string) {
	resp, err := http.Get(ts.Getenv("SHOP_URL") + "/sold")
	ts.Check(err)
	defer resp.Body.Close()
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
}

// until TEXT COMMAND...: repeats a command until its output has the text.
func until(ts *testscript.TestScript, _ bool, args []string) {
	end, tick := time.Now().Add(30*time.Second), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for {
		var out string
		if args[1] == "sold" {
			resp, err := http.Get(ts.Getenv("SHOP_URL") + "/sold")
			ts.Check(err)
			text, err := io.ReadAll(resp.Body)
			ts.Check(errors.Join(err, resp.Body.Close()))
			out = string(text)
		} else {
			_ = ts.Exec(args[1], args[2:]...) // what it prints is looked at
			out = ts.ReadFile("stdout")
		}
		if strings.Contains(out, args[0]) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%q never came; the last output:\n%s%s", args[0], out, ts.ReadFile("stderr"))
		}
		<-tick.C
	}
}
