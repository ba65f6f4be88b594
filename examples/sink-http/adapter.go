package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
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
	var lines bytes.Buffer
	for _, r := range records {
		fmt.Fprintf(&lines, "%s\n", r.Value)
	}
	return s.call(ctx, id, "items", &lines)
}

func (s *shop) PreCommit(ctx context.Context, id string) error {
	return s.call(ctx, id, "reserve", nil)
}

func (s *shop) Commit(ctx context.Context, id string) error { return s.call(ctx, id, "confirm", nil) }

func (s *shop) Abort(ctx context.Context, id string) error { return s.call(ctx, id, "cancel", nil) }

func (s *shop) Close() error {
	s.http.CloseIdleConnections()
	return nil
}

func (s *shop) call(ctx context.Context, id, verb string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/reservations/"+id+"/"+verb, body)
	if err != nil {
		return fmt.Errorf("%w: %w", participant.ErrMisconfigured, err)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err // nobody knows what happened; it is asked again
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		return nil
	case code == http.StatusGone:
		return fmt.Errorf("%w: the shop has cancelled it", participant.ErrLost)
	case code >= 400 && code < 500:
		return fmt.Errorf("%w: %s answers %s", participant.ErrMisconfigured, req.URL, resp.Status)
	}
	return fmt.Errorf("%s answers %s", req.URL, resp.Status)
}
