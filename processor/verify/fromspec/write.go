package fromspec

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// toJSON is a value as package verify compares JSON: numbers as json.Number.
func toJSON(v ref.Val) (any, error) {
	switch x := v.(type) {
	case *types.Err:
		return nil, x
	case types.Null:
		return nil, nil //nolint:nilnil // null is a value
	case types.Bool:
		return bool(x), nil
	case types.Int:
		return json.Number(strconv.FormatInt(int64(x), 10)), nil
	case types.Uint:
		return json.Number(strconv.FormatUint(uint64(x), 10)), nil
	case types.Double:
		return double(float64(x)), nil
	case types.String:
		return string(x), nil
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(x), nil
	case types.Timestamp:
		return x.UTC().Format(time.RFC3339Nano), nil
	case types.Duration:
		return strconv.FormatFloat(x.Seconds(), 'f', -1, 64) + "s", nil
	case *types.Optional:
		if !x.HasValue() {
			return nil, nil //nolint:nilnil // as above
		}
		return toJSON(x.GetValue())
	case traits.Mapper:
		return mapToJSON(x)
	case traits.Lister:
		out := []any{}
		for it := x.Iterator(); it.HasNext() == types.True; {
			y, err := toJSON(it.Next())
			if err != nil {
				return nil, err
			}
			out = append(out, y)
		}
		return out, nil
	}
	return nil, fmt.Errorf("a %s can't be written as JSON", v.Type().TypeName())
}

func mapToJSON(m traits.Mapper) (any, error) {
	out := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		name, ok := k.ConvertToType(types.StringType).(types.String)
		if !ok {
			return nil, fmt.Errorf("a %s is no name of a field", k.Type().TypeName())
		}
		v := m.Get(k)
		if o, optional := v.(*types.Optional); optional && !o.HasValue() {
			continue
		}
		y, err := toJSON(v)
		if err != nil {
			return nil, err
		}
		out[string(name)] = y
	}
	return out, nil
}

func double(f float64) any {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
}
