package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// shop sells in reservations, which are reserved, and then confirmed or cancelled. T is the id of one.
type shop struct {
	url  string
	http http.Client
}

func (s *shop) Begin(context.Context) (string, error) { return rand.Text(), nil }

func (s *shop) Write(ctx context.Context, id string, records []stream.Record) error {
	var lines []byte
	for _, r := range records {
		lines = fmt.Appendf(lines, "%s\n", r.Value)
	}
	return s.do(ctx, id, "items", lines...)
}

func (s *shop) PreCommit(ctx context.Context, id string) error { return s.do(ctx, id, "reserve") }

func (s *shop) Commit(ctx context.Context, id string) error { return s.do(ctx, id, "confirm") }

func (s *shop) Abort(ctx context.Context, id string) error { return s.do(ctx, id, "cancel") }

func (s *shop) Close() error {
	s.http.CloseIdleConnections()
	return nil
}

func (s *shop) do(ctx context.Context, id, verb string, body ...byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/reservations/"+id+"/"+verb, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", participant.ErrMisconfigured, err)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err // nobody knows what happened; it is asked again
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusGone:
		return fmt.Errorf("%w: the shop has cancelled it", participant.ErrLost)
	}
	return fmt.Errorf("%s answers %s", req.URL, resp.Status) // asked again too
}
