package verify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/unisink/unisink/processor/verify"
)

// Example verifies a pipeline that sums amounts by customer over seconds. One result was lost.
func Example() {
	orders := script{"0": {
		`{"customer":"ada","at":100,"amount":5}`,
		`{"customer":"bob","at":200,"amount":7}`,
		`{"customer":"ada","at":1500,"amount":1}`,
	}}
	topic := outputs{`{"customer":"ada","start":0,"total":5}`}
	report, err := verify.Run(context.Background(),
		verify.Pipeline{Window: time.Second, EventTime: "at", Key: "customer", Value: "amount"},
		orders,
		[]verify.Sink{{Name: "topic", Reader: topic, Key: "customer", Start: "start", Fields: map[string]verify.Aggregate{"total": verify.Sum}}},
		orders.cut())
	if err != nil {
		fmt.Println(err)
		return
	}
	text, _ := json.Marshal(report)
	fmt.Println(string(text))
	// Output: {"verdict":"broken","records":3,"compared":1,"windows":2,"missing":[{"sink":"topic","key":"bob","window":"1970-01-01T00:00:00.000Z/1970-01-01T00:00:01.000Z"}],"doubled":[],"different":[],"undeterminable":[]}
}
