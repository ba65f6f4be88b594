package branchname

import "testing"

func TestL9_WhoseBranchAHandleNames(t *testing.T) {
	epoch := Owner{Namespace: "ns", Incarnation: 2, Pipeline: "orders", Shard: 1, Member: "sink", Generation: 7, Resource: "out"}
	byHand := Owner{Namespace: "ns", Incarnation: 2, Txn: "0190a0b0-0000-7000-8000-000000000000", Resource: "out"}
	for _, c := range []struct {
		of     Owner
		handle string
		want   string // what is said to differ; "" for an own one
	}{
		{epoch, "ns~2.orders.1.sink.out.7.12", ""},
		{epoch, "ns.orders.1.sink.out.7.12", ""}, // of an older incarnation
		{epoch, "ns~2.orders.1.sink.out.7.3|4711|0", ""},
		{epoch, "ns~2.orders.1.sink.out.7.12#5", ""},
		{epoch, "", ""},
		{epoch, "stage-4711", ""},
		{epoch, "ns~3.orders.1.sink.out.7.12", "namespace ns~3 instead of ns~2"},
		{epoch, "n.orders.1.sink.out.7.12", "namespace n instead of ns~2"},
		{epoch, "ns~2.order.1.sink.out.7.12", "scope order/1 instead of orders/1"},
		{epoch, "ns~2.orders.0.sink.out.7.12", "scope orders/0 instead of orders/1"},
		{epoch, "ns~2.orders.1.sink2.out.7.12#1", "member sink2 instead of sink"},
		{epoch, "ns~2.orders.1.sink.in.7.12", "resource in instead of out"},
		{epoch, "ns~2.orders.1.sink.out.8.12|1|1", "generation 8 instead of 7"},
		{epoch, "ns~2._hand.0.teller.out.7.1|1|1", "scope _hand/0 instead of orders/1"},
		{epoch, "ns~2." + byHand.Txn + ".out", "transaction " + byHand.Txn + " instead of scope orders/1"},
		{byHand, "ns~2." + byHand.Txn + ".out", ""},
		{byHand, "ns." + byHand.Txn + ".out#4", ""},
		{byHand, "ns~2._hand.0.teller.out.1764.3|4711|0", ""}, // of before
		{byHand, "ns~2." + byHand.Txn + ".out|ns~2._hand.0.teller.out.1764.3|4711|0", ""},
		{
			byHand, "ns~2.0190a0b0-0000-7000-8000-000000000001.out|ns~2._hand.0.teller.out.1764.3|4711|0",
			"transaction 0190a0b0-0000-7000-8000-000000000001 instead of transaction " + byHand.Txn,
		},
		{byHand, "ns~2." + byHand.Txn + ".out|ns~2.orders.1.sink.out.7.3|4711|0", "scope orders/1 instead of transaction " + byHand.Txn},
		{byHand, "ns~2." + byHand.Txn + ".out|n._hand.0.teller.out.1764.3|4711|0", "namespace n instead of ns~2"},
		{byHand, "ns~2." + byHand.Txn + ".out|part.0.json", ""},
		{byHand, "ns~2.0190a0b0-0000-7000-8000-000000000001.out", "transaction 0190a0b0-0000-7000-8000-000000000001 instead of transaction " + byHand.Txn},
		{byHand, "ns~2." + byHand.Txn + ".in", "resource in instead of out"},
		{byHand, "ns~2.orders.1.sink.out.7.12", "scope orders/1 instead of transaction " + byHand.Txn},
		{Owner{Namespace: "ns", Pipeline: "orders", Member: "sink"}, "ns~9.orders.0.sink.any.99.12", ""}, // not asked about
	} {
		want := ""
		if c.want != "" {
			want = "the handle " + c.handle + " names another branch than its own: " + c.want
		}
		if got := c.of.Foreign(c.handle); got != want {
			t.Errorf("%+v, %q: got %q, want %q", c.of, c.handle, got, want)
		}
	}
}
