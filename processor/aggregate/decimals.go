package aggregate

// SumDecimal adds up a field, exactly. A sum of more than 38 digits is ErrOverflow. It has as many digits
// behind the point as the longest of the numbers.
func SumDecimal[T any](field func(rec *T) Decimal) Of[T, Decimal] { return sumDecimal[T]{field} }

// MinDecimal keeps the least value of a field; of equal ones the first.
func MinDecimal[T any](field func(rec *T) Decimal) Of[T, DecimalExtreme] {
	return extremeDecimal[T]{"min_decimal", -1, field}
}

// MaxDecimal keeps the largest value of a field; of equal ones the first.
func MaxDecimal[T any](field func(rec *T) Decimal) Of[T, DecimalExtreme] {
	return extremeDecimal[T]{"max_decimal", 1, field}
}

// AvgDecimal keeps sum and count of a field, both exact; see [DecimalMean.Avg]. Errors are those of [SumDecimal].
func AvgDecimal[T any](field func(rec *T) Decimal) Of[T, DecimalMean] { return avgDecimal[T]{field} }

// DecimalExtreme is the accumulator of MinDecimal and MaxDecimal. Some is false, and Value 0, of no records.
type DecimalExtreme struct {
	Value Decimal
	Some  bool
}

// DecimalMean is the accumulator of AvgDecimal.
type DecimalMean struct {
	Sum   Decimal
	Count int64
}

// Avg is the mean, rounded half to even to scale digits behind the point; 0 of no records. ErrOverflow
// if that takes more than 38 digits.
func (m DecimalMean) Avg(scale int) (Decimal, error) { return m.Sum.Quo(max(m.Count, 1), scale) }

type sumDecimal[T any] struct{ field func(*T) Decimal }

func (sumDecimal[T]) Name() string { return "sum_decimal" }

func (sumDecimal[T]) Init(acc *Decimal) { *acc = Decimal{} }

func (s sumDecimal[T]) Add(acc *Decimal, rec *T) error {
	v := s.field(rec)
	return s.Merge(acc, &v)
}

func (s sumDecimal[T]) Check(acc *Decimal, rec *T) error {
	_, err := acc.Add(s.field(rec))
	return err
}

func (sumDecimal[T]) Merge(acc, other *Decimal) error {
	sum, err := acc.Add(*other)
	if err != nil {
		return err
	}
	*acc = sum
	return nil
}

func (sumDecimal[T]) Encode(dst []byte, acc *Decimal) []byte { return acc.encode(dst) }

func (sumDecimal[T]) Decode(src []byte, acc *Decimal) error {
	r := reader{rest: src}
	acc.decode(&r)
	return r.end()
}

type extremeDecimal[T any] struct {
	name  string
	sign  int // of the comparison of what is better with what is there
	field func(*T) Decimal
}

func (e extremeDecimal[T]) Name() string { return e.name }

func (extremeDecimal[T]) Init(acc *DecimalExtreme) { *acc = DecimalExtreme{} }

func (e extremeDecimal[T]) Add(acc *DecimalExtreme, rec *T) error {
	return e.Merge(acc, &DecimalExtreme{e.field(rec), true})
}

func (extremeDecimal[T]) Check(*DecimalExtreme, *T) error { return nil }

func (e extremeDecimal[T]) Merge(acc, other *DecimalExtreme) error {
	if other.Some && (!acc.Some || other.Value.Cmp(acc.Value) == e.sign) {
		*acc = *other
	}
	return nil
}

// Encode writes nothing for no records.
func (extremeDecimal[T]) Encode(dst []byte, acc *DecimalExtreme) []byte {
	if !acc.Some {
		return dst
	}
	return acc.Value.encode(dst)
}

func (extremeDecimal[T]) Decode(src []byte, acc *DecimalExtreme) error {
	*acc = DecimalExtreme{}
	if len(src) == 0 {
		return nil
	}
	r := reader{rest: src}
	acc.Value.decode(&r)
	acc.Some = true
	return r.end()
}

type avgDecimal[T any] struct{ field func(*T) Decimal }

func (avgDecimal[T]) Name() string { return "avg_decimal" }

func (avgDecimal[T]) Init(acc *DecimalMean) { *acc = DecimalMean{} }

func (a avgDecimal[T]) Add(acc *DecimalMean, rec *T) error {
	return a.Merge(acc, &DecimalMean{a.field(rec), 1})
}

func (a avgDecimal[T]) Check(acc *DecimalMean, rec *T) error {
	next := *acc
	return a.Add(&next, rec)
}

func (avgDecimal[T]) Merge(acc, other *DecimalMean) error {
	n := acc.Count
	if err := addTo(&n, other.Count); err != nil {
		return err
	}
	sum, err := acc.Sum.Add(other.Sum)
	if err != nil {
		return err
	}
	*acc = DecimalMean{sum, n}
	return nil
}

func (avgDecimal[T]) Encode(dst []byte, acc *DecimalMean) []byte {
	return acc.Sum.encode(appendInts(dst, acc.Count))
}

func (avgDecimal[T]) Decode(src []byte, acc *DecimalMean) error {
	r := reader{rest: src}
	acc.Count = r.varint()
	acc.Sum.decode(&r)
	return r.end()
}
