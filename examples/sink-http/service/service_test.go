package service_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/unisink/unisink/examples/sink-http/service"
)

func ask(t *testing.T, s *service.Shop, path string, body io.Reader) int {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, body))
	return w.Code
}

func TestItemsAreTakenWholeOrNotAtAll(t *testing.T) {
	s := service.New()
	long := strings.Repeat("x", 1<<20)
	if code := ask(t, s, "/reservations/1/items", strings.NewReader("first\n"+long+"\nlast\n")); code != http.StatusOK {
		t.Errorf("a long line: %d", code)
	}
	cut := io.MultiReader(strings.NewReader("half\n"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if code := ask(t, s, "/reservations/1/items", cut); code != http.StatusBadRequest {
		t.Errorf("a body that is cut: %d", code)
	}
	for _, verb := range []string{"reserve", "confirm", "confirm"} {
		if code := ask(t, s, "/reservations/1/"+verb, nil); code != http.StatusOK {
			t.Errorf("%s: %d", verb, code)
		}
	}
	if got, want := s.Sold(), []string{"first", long, "last"}; !slices.Equal(got, want) {
		t.Errorf("%d lines are sold, want %d", len(got), len(want))
	}
}
