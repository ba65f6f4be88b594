package column

// Kind is how a column's content is written.
type Kind uint8

const (
	kindUnset Kind = iota
	Integer
	Float
	Numeric
	Bool
	Text
	Bytes
	Timestamp   // with time zone
	LocalTime   // timestamp without time zone: UTC
	Date        //
	JSON        // json and jsonb
	OtherObject // everything else: a text that the server reads
)

// The OIDs of built-in types, which never change (PostgreSQL's pg_type.dat).
const (
	oidBool      = 16
	oidBytea     = 17
	oidName      = 19
	oidInt8      = 20
	oidChar      = 18 // "char", of one byte
	oidInt2      = 21
	oidInt4      = 23
	oidText      = 25
	oidJSON      = 114
	oidFloat4    = 700
	oidFloat8    = 701
	oidBpchar    = 1042
	oidVarchar   = 1043
	oidDate      = 1082
	oidTime      = 1083
	oidTimestamp = 1114
	oidTimestamz = 1184
	oidInterval  = 1186
	oidTimetz    = 1266
	oidNumeric   = 1700
	oidJSONB     = 3802
)

// Type of a column. The zero value is not usable; see [TypeOf].
type Type struct {
	Kind Kind
	// Name as the server writes it: "numeric(10,2)".
	Name string
	// Bits of integers and floats.
	Bits int
	// MaxLength of texts, characters; 0: any.
	MaxLength int
	// MaxBytes of texts; 0: any.
	MaxBytes int
	// Digits of a second that are kept, of times and intervals.
	Digits int
	// Clock: a time of day, for which PostgreSQL reads words that mean something else each time.
	Clock bool
	// Interval: a length of time.
	Interval bool
	// Precision and Scale of numerics; Precision 0: any.
	Precision, Scale int
	// Binary: jsonb, which takes no NUL in texts.
	Binary bool
}

// TypeOf knows a type by its OID and modifier. Of a domain those are its base type's.
func TypeOf(oid uint32, modifier int32, name string) Type {
	t := Type{Kind: OtherObject, Name: name}
	switch oid {
	case oidInt2:
		t.Kind, t.Bits = Integer, 16
	case oidInt4:
		t.Kind, t.Bits = Integer, 32
	case oidInt8:
		t.Kind, t.Bits = Integer, 64
	case oidFloat4:
		t.Kind, t.Bits = Float, 32
	case oidFloat8:
		t.Kind, t.Bits = Float, 64
	case oidBool:
		t.Kind = Bool
	case oidText:
		t.Kind = Text
	case oidVarchar, oidBpchar:
		t.Kind = Text
		if modifier > modifierHead {
			t.MaxLength = int(modifier) - modifierHead
		}
	case oidBytea:
		t.Kind = Bytes
	case oidTimestamz:
		t.Kind, t.Digits = Timestamp, digits(modifier)
	case oidTimestamp:
		t.Kind, t.Digits = LocalTime, digits(modifier)
	case oidTime, oidTimetz:
		t.Clock, t.Digits = true, digits(modifier)
	case oidInterval:
		t.Interval, t.Digits = true, digits(modifier&0xffff) // above are the fields
	case oidName:
		t.Kind, t.MaxBytes = Text, 63
	case oidChar:
		t.Kind, t.MaxBytes = Text, 1
	case oidDate:
		t.Kind = Date
	case oidJSON, oidJSONB:
		t.Kind, t.Binary = JSON, oid == oidJSONB
	case oidNumeric:
		t.Kind = Numeric
		if modifier >= modifierHead {
			// As in numeric_typmod_precision and numeric_typmod_scale: eleven bits of scale, with sign.
			m := modifier - modifierHead
			t.Precision, t.Scale = int(m>>16&0xffff), int((m&0x7ff)^1024)-1024
		}
	}
	return t
}

// digits of a second by the modifier of a time: some, or all.
func digits(modifier int32) int {
	if modifier < 0 || modifier > microseconds {
		return microseconds
	}
	return int(modifier)
}

// microseconds has as many digits.
const microseconds = 6

// modifierHead is what stands before a length in a type's modifier.
const modifierHead = 4
