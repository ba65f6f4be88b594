package aggregate

import "github.com/unisink/unisink/processor/number"

// SumDecimal adds up a field, exactly. A sum of more than 38 digits is ErrOverflow. It has as many digits
// behind the point as the longest of the numbers.
func SumDecimal[T any](field func(rec *T) number.Decimal) Of[T, number.Decimal] {
	return &plain[T, number.Decimal, number.Decimal]{
		name: "sum_decimal", field: field,
		add: addDecimal, merge: func(acc, other *number.Decimal) error { return addDecimal(acc, *other) },
		encode: func(acc *number.Decimal, dst []byte) []byte { return acc.AppendBinary(dst) },
		decode: func(acc *number.Decimal, r *reader) { *acc = r.decimal() },
	}
}

// MinDecimal keeps the least value of a field; of equal ones the first.
func MinDecimal[T any](field func(rec *T) number.Decimal) Of[T, DecimalExtreme] {
	return extremeDecimalOf("min_decimal", -1, field)
}

// MaxDecimal keeps the largest value of a field; of equal ones the first.
func MaxDecimal[T any](field func(rec *T) number.Decimal) Of[T, DecimalExtreme] {
	return extremeDecimalOf("max_decimal", 1, field)
}

// extremeDecimalOf keeps what compares with what is there by sign.
func extremeDecimalOf[T any](name string, sign int, field func(*T) number.Decimal) Of[T, DecimalExtreme] {
	keep := func(acc *DecimalExtreme, v number.Decimal) error {
		if !acc.Some || v.Cmp(acc.Value) == sign {
			*acc = DecimalExtreme{v, true}
		}
		return nil
	}
	return &plain[T, number.Decimal, DecimalExtreme]{
		name: name, field: field, add: keep,
		merge: func(acc, other *DecimalExtreme) error {
			if !other.Some {
				return nil
			}
			return keep(acc, other.Value)
		},
		encode: (*DecimalExtreme).encode, decode: (*DecimalExtreme).decode,
	}
}

// DecimalExtreme is the accumulator of MinDecimal and MaxDecimal. Some is false, and Value 0, of no records.
type DecimalExtreme struct {
	Value number.Decimal
	Some  bool
}

// encode writes nothing for no records.
func (e *DecimalExtreme) encode(dst []byte) []byte {
	if !e.Some {
		return dst
	}
	return e.Value.AppendBinary(dst)
}

func (e *DecimalExtreme) decode(r *reader) {
	if len(r.rest) > 0 {
		e.Value = r.decimal()
		e.Some = true
	}
}

// AvgDecimal keeps sum and count of a field, both exact; see [DecimalMean.Avg]. Errors are those of [SumDecimal].
func AvgDecimal[T any](field func(rec *T) number.Decimal) Of[T, DecimalMean] {
	return &plain[T, number.Decimal, DecimalMean]{
		name: "avg_decimal", field: field,
		add: (*DecimalMean).add, merge: (*DecimalMean).merge, encode: (*DecimalMean).encode, decode: (*DecimalMean).decode,
	}
}

// DecimalMean is the accumulator of AvgDecimal.
type DecimalMean struct {
	Sum   number.Decimal
	Count int64
}

// Avg is the mean, rounded half to even to scale digits behind the point; 0 of no records. ErrOverflow
// if that takes more than 38 digits.
func (m DecimalMean) Avg(scale int) (number.Decimal, error) { return m.Sum.Quo(max(m.Count, 1), scale) }

func (m *DecimalMean) add(v number.Decimal) error { return m.merge(&DecimalMean{v, 1}) }

func (m *DecimalMean) merge(other *DecimalMean) error {
	return counted(&m.Count, other.Count, func() error { return addDecimal(&m.Sum, other.Sum) })
}

func (m *DecimalMean) encode(dst []byte) []byte { return m.Sum.AppendBinary(appendInts(dst, m.Count)) }

func (m *DecimalMean) decode(r *reader) {
	m.Count = r.varint()
	m.Sum = r.decimal()
}

// addDecimal adds v. After an error acc is as it was.
func addDecimal(acc *number.Decimal, v number.Decimal) error {
	sum, err := acc.Add(v)
	if err == nil {
		*acc = sum
	}
	return err
}
