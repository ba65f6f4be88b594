// Package service is a shop in memory, for the example around it: whoever sells can reserve, and then
// confirm or cancel.
package service

import (
	"bufio"
	"fmt"
	"net/http"
	"sync"
)

// Shop is an http.Handler:
//
//	POST /reservations/ID/items      adds the lines of the body to a reservation, which this makes
//	POST /reservations/ID/reserve    keeps its items until it is confirmed or cancelled
//	POST /reservations/ID/confirm    sells them
//	POST /reservations/ID/cancel     lets them go; the id is never reserved again, heard of or not
//	GET  /sold                       the lines that are sold, in order
//
// Reserve, confirm and cancel may be repeated. 410 says that it was cancelled, 409 that it is sold,
// or was not reserved.
type Shop struct {
	mux  *http.ServeMux
	mu   sync.Mutex // guards the rest
	open map[string]*reservation
	sold []string
}

type reservation struct {
	state state
	items []string
}

type state string

const (
	written   state = "written"
	reserved  state = "reserved"
	confirmed state = "confirmed"
	cancelled state = "cancelled"
)

// New is a shop that has sold nothing.
func New() *Shop {
	s := &Shop{mux: http.NewServeMux(), open: map[string]*reservation{}}
	s.mux.HandleFunc("POST /reservations/{id}/{verb}", s.serve)
	s.mux.HandleFunc("GET /sold", func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range s.Sold() {
			fmt.Fprintln(w, line)
		}
	})
	return s
}

// ServeHTTP implements http.Handler.
func (s *Shop) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Sold are the lines that are sold, in order.
func (s *Shop) Sold() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.sold...)
}

// longestLine that is taken, bytes.
const longestLine = 16 << 20

func (s *Shop) serve(w http.ResponseWriter, r *http.Request) {
	var lines []string
	in := bufio.NewScanner(r.Body)
	in.Buffer(nil, longestLine)
	for in.Scan() {
		lines = append(lines, in.Text())
	}
	if err := in.Err(); err != nil { // what was read of it is no item
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	code, text := s.change(r.PathValue("id"), r.PathValue("verb"), lines)
	w.WriteHeader(code)
	if code != http.StatusOK {
		fmt.Fprintln(w, text)
	}
}

func (s *Shop) change(id, verb string, lines []string) (int, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.open[id]
	if r == nil {
		r = &reservation{state: written}
	}
	switch {
	case verb == "cancel" && r.state != confirmed:
		r.state, r.items = cancelled, nil
	case r.state == cancelled:
		return http.StatusGone, "it was cancelled"
	case verb == "items" && r.state == written:
		r.items = append(r.items, lines...)
	case verb == "reserve" && (r.state == written || r.state == reserved):
		r.state = reserved
	case verb == "confirm" && r.state == reserved:
		s.sold = append(s.sold, r.items...)
		r.state, r.items = confirmed, nil
	case verb == "confirm" && r.state == confirmed:
	default:
		return http.StatusConflict, fmt.Sprintf("it is %s: no %s", r.state, verb)
	}
	s.open[id] = r
	return http.StatusOK, ""
}
