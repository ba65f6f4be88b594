package postgres

import (
	"context"
	"strings"

	"github.com/unisink/unisink/participant"
)

// schema looks whether what the adapter keeps is there, and usable.
func (d *doctor) schema(ctx context.Context) {
	subject := "database " + d.database
	var present, missing []string
	for _, t := range ownTables {
		var there bool
		if err := d.c.QueryRow(ctx, "SELECT to_regclass($1::text) IS NOT NULL", "unisink."+t).Scan(&there); err != nil {
			d.unknown(subject, "schema unisink", "present", err)
			return
		}
		if there {
			present = append(present, t)
		} else {
			missing = append(missing, t)
		}
	}
	var create, owner bool
	if err := d.one(ctx, `SELECT has_database_privilege(current_database(), 'CREATE'),
		coalesce((SELECT pg_has_role(nspowner, 'USAGE') FROM pg_catalog.pg_namespace WHERE nspname = 'unisink'), true)`, &create, &owner); err != nil {
		d.unknown(subject, "schema unisink", "present", err)
		return
	}
	f := Finding{Subject: subject, Setting: "schema unisink", Found: "complete", Wanted: "complete"}
	switch {
	case len(missing) == 0:
		d.judge(true, Note, f)
		d.usable(ctx, present)
	case create && owner:
		f.Found = "not there: " + strings.Join(missing, ", ")
		f.Why = "it is made when a pipeline starts, which this role may do; or run `unisink postgres init`"
		d.judge(false, Note, f)
	default:
		f.Found = "not there: " + strings.Join(missing, ", ")
		f.Why = "this role may not make it; let an owner run what `unisink postgres init --print` prints"
		d.judge(false, Wrong, f)
	}
}

// usable looks for rights on the adapter's own tables.
func (d *doctor) usable(ctx context.Context, tables []string) {
	var lacking []string
	for _, t := range tables {
		var ok bool
		err := d.c.QueryRow(ctx, `SELECT CASE WHEN NOT has_schema_privilege('unisink', 'USAGE') THEN false
			ELSE has_table_privilege($1::text, 'SELECT') AND has_table_privilege($1::text, 'INSERT') AND has_table_privilege($1::text, 'UPDATE') AND has_table_privilege($1::text, 'DELETE') END`,
			"unisink."+t).Scan(&ok)
		if err != nil {
			d.unknown("role "+d.role, "rights in schema unisink", "read and write", err)
			return
		}
		if !ok {
			lacking = append(lacking, t)
		}
	}
	found := "read and write"
	if len(lacking) > 0 {
		found = "lacking on " + strings.Join(lacking, ", ")
	}
	d.judge(len(lacking) == 0, Wrong, Finding{
		Subject: "role " + d.role, Setting: "rights in schema unisink", Found: found, Wanted: "read and write",
		Why: "GRANT USAGE ON SCHEMA unisink and SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA unisink to it",
	})
}

// rights looks at what else the role needs.
func (d *doctor) rights(ctx context.Context) {
	var control, signal bool
	if err := d.one(ctx, `SELECT has_function_privilege('pg_control_system()', 'EXECUTE'), pg_has_role('pg_signal_backend', 'USAGE')`, &control, &signal); err != nil {
		d.unknown("role "+d.role, "rights", "enough", err)
		return
	}
	yes := map[bool]string{true: "yes", false: "no"}
	d.judge(control, Wrong, Finding{
		Subject: "role " + d.role, Setting: "may ask which server it is", Found: yes[control], Wanted: "yes", Why: "GRANT EXECUTE ON FUNCTION pg_control_system() to it",
	})
	d.judge(signal, Note, Finding{
		Subject: "role " + d.role, Setting: "may end backends of other roles", Found: yes[signal], Wanted: "yes, if members write as several roles",
		Why: "an older process that writes as another role could not be ended; GRANT pg_signal_backend to it, or use one role",
	})
}

// tables holds the tables of the options against the server.
func (d *doctor) tables(ctx context.Context) {
	for _, t := range d.cfg.Options.Tables {
		_, err := newTarget(ctx, d.c, t)
		f := Finding{Subject: "table " + t.Name, Setting: "columns, key and rights", Found: "as written to", Wanted: "as written to"}
		if err != nil {
			f.Found = "not so"
			f.Why = strings.ReplaceAll(strings.ReplaceAll(err.Error(), ": "+participant.ErrMisconfigured.Error(), ""), "\n", "; ")
		}
		d.judge(err == nil, Wrong, f)
	}
}
