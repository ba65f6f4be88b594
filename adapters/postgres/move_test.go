package postgres

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/unisink/unisink/internal/services"
)

// What an earlier build staged has documents within the row, and is moved as that build would have moved it.
func TestAMoveOfAnEarlierBuildIsDone(t *testing.T) {
	r := newRig(t, services.PostgresCurrent, Staged)
	r.query("CREATE TABLE docs (id int PRIMARY KEY, j json, jb jsonb)", "SELECT ''")
	d := r.opened(1)
	b := r.begin(d, 1, 1)
	m := Move{Schema: "public", Table: "docs", Columns: []string{"id", "j", "jb"}, Key: []string{"id"}}
	if err := b.stage(r.ctx, m, nil, [][]byte{[]byte(`{"id":"1","j":{"a":[1]},"jb":{"b":2}}`)}); err != nil {
		t.Fatal(err)
	}
	r.commit(d, r.prepared(b))
	if got := r.query("SELECT d::text FROM docs d"); len(got) != 1 || got[0] != `(1,"{""a"": [1]}","{""b"": 2}")` {
		t.Errorf("docs has %q", got)
	}
}

// An earlier build finds no columns in a move with documents, and so no statement that the server takes: it leaves the
// branch to one that knows of them.
func TestAMoveWithDocumentsIsOneWithoutColumnsToAnEarlierBuild(t *testing.T) {
	for name, m := range map[string]Move{
		"documents": {Schema: "public", Table: "docs", Columns: []string{"id", "j", "b"}, Key: []string{"id"}, JSON: []string{"j"}, JSONB: []string{"b"}, OID: "7"},
		"none":      {Schema: "public", Table: "docs", Columns: []string{"id"}, Key: []string{"id"}, DeleteOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal([]Move{m})
			if err != nil {
				t.Fatal(err)
			}
			var back []Move
			if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, []Move{m}) {
				t.Errorf("%s is read as %+v, %v", text, back, err)
			}
			var earlier []struct {
				Table   string   `json:"table"`
				Columns []string `json:"columns"`
				Key     []string `json:"key"`
			}
			if err := json.Unmarshal(text, &earlier); err != nil {
				t.Fatal(err)
			}
			if got := earlier[0]; got.Table != "docs" || len(got.Key) != 1 || (len(got.Columns) == 0) != (name == "documents") {
				t.Errorf("an earlier build reads %s as %+v", text, got)
			}
		})
	}
}
