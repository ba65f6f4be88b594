package aggregate

// plain is an aggregate over one field, whose accumulators are values: copies are independent.
type plain[T, V, A any] struct {
	name  string
	field func(*T) V
	none  A // the accumulator of no records

	// After an error of these acc is as it was.
	add   func(acc *A, v V) error
	merge func(acc, other *A) error

	encode func(acc *A, dst []byte) []byte
	decode func(acc *A, r *reader)

	next A // of Check; kept here so that it is not made anew for each record
}

func (p *plain[T, V, A]) Name() string { return p.name }

// copies is true although some have pointers: nothing behind them is ever changed.
func (*plain[T, V, A]) copies() bool { return true }

func (p *plain[T, V, A]) Init(acc *A) { *acc = p.none }

func (p *plain[T, V, A]) Add(acc *A, rec *T) error { return p.add(acc, p.field(rec)) }

func (p *plain[T, V, A]) Check(acc *A, rec *T) error {
	p.next = *acc
	return p.add(&p.next, p.field(rec))
}

func (p *plain[T, V, A]) Merge(acc, other *A) error { return p.merge(acc, other) }

func (p *plain[T, V, A]) Encode(dst []byte, acc *A) []byte { return p.encode(acc, dst) }

func (p *plain[T, V, A]) Decode(src []byte, acc *A) error {
	r := reader{rest: src}
	*acc = p.none
	p.decode(acc, &r)
	return r.end()
}
