package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/aggregate"
	"github.com/unisink/unisink/processor/jsonfield"
	"github.com/unisink/unisink/processor/stream"
)

// order is what the pipeline needs of one record. The customer points into the record: nothing is copied.
type order struct {
	customer []byte
	cents    int64
	at       int64 // Unix milliseconds
}

// decoder reads the three fields that are used, and no others.
func decoder() func(in *stream.Record, out *order) error {
	fields := jsonfield.For("customer", "cents", "at")
	var v [3]jsonfield.Value
	var text []byte
	return func(in *stream.Record, out *order) (err error) {
		if err = fields.Read(in.Value, v[:]); err != nil {
			return err
		}
		if out.customer, err = v[0].Text(&text); err != nil {
			return fmt.Errorf("field %q: %w", "customer", err)
		}
		if out.cents, err = v[1].Int(); err != nil {
			return fmt.Errorf("field %q: %w", "cents", err)
		}
		if out.at, err = v[2].Int(); err != nil {
			return fmt.Errorf("field %q: %w", "at", err)
		}
		return nil
	}
}

// encode writes one customer's window.
func encode(r *processor.Result[aggregate.Mean], out *stream.Record) error {
	out.Key = append(out.Key, r.Key...)
	customer, err := json.Marshal(string(r.Key))
	if err != nil {
		return err
	}
	b := append(append(out.Value, `{"customer":`...), customer...)
	b = strconv.AppendInt(append(b, `,"window_start":`...), r.Window.Start, 10)
	b = strconv.AppendInt(append(b, `,"window_end":`...), r.Window.End, 10)
	b = strconv.AppendInt(append(b, `,"count":`...), r.Value.Count, 10)
	b = strconv.AppendInt(append(b, `,"sum_cents":`...), r.Value.Sum, 10)
	out.Value = append(b, '}')
	out.Time = r.Window.End
	return nil
}

// encodeLate passes a late order on as it came.
func encodeLate(in *stream.Record, _ *order, out *stream.Record) error {
	out.Key = append(out.Key, in.Key...)
	out.Value = append(out.Value, in.Value...)
	out.Headers = append(out.Headers, in.Headers...)
	out.Time = in.Time
	return nil
}
