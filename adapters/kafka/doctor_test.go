package kafka

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/unisink/unisink/adapters/kafka/devkafka"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
)

// examined lets the doctor look.
func examined(t *testing.T, cfg DoctorConfig) []Finding {
	t.Helper()
	found, err := Examine(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if t.Failed() || testing.Verbose() {
		for _, f := range found {
			t.Logf("%-8s %s", f.Severity, f.Sentence())
		}
	}
	return found
}

// want fails unless a setting of a subject was found so, at least once.
func want(t *testing.T, found []Finding, severity Severity, subject, setting, value string) {
	t.Helper()
	for _, f := range found {
		if f.Subject == subject && strings.HasPrefix(f.Setting, setting) && f.Severity == severity && (value == "" || f.Found == value) {
			if f.Wanted == "" || (f.Severity != Fine) == (f.Why == "") {
				t.Errorf("%+v lacks what is wanted, or why", f)
			}
			return
		}
	}
	t.Errorf("no %s about %s of %s, found %q", severity, setting, subject, value)
	for _, f := range found {
		if f.Subject == subject {
			t.Logf("%-8s %s", f.Severity, f.Sentence())
		}
	}
}

func TestTheDoctorNamesWhatIsMissingOrRiskyOnTheEmbeddedBroker(t *testing.T) {
	br := broker(t, devkafka.Config{Topics: map[string]int{"totals": 2}})
	found := examined(t, DoctorConfig{Sink: SinkConfig{Brokers: []string{br.Addr()}}, From: []string{"nowhere"}, To: []string{"totals"}})
	want(t, found, Wrong, "topic nowhere", "existence", "")
	want(t, found, Note, "topic totals", "replication factor", "1") // it was never meant for more
	if found[0].Severity != Wrong {
		t.Errorf("the worst is not the first: %+v", found[0])
	}
	if err := Refuse(found); !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("got %v, want a refusal that names the topic", err)
	}
}

func TestTheDoctorIsNotStoppedByABrokerThatIsAway(t *testing.T) {
	br := broker(t, devkafka.Config{})
	addr := br.Addr()
	br.Close()
	if _, err := Examine(t.Context(), DoctorConfig{Sink: SinkConfig{Brokers: []string{addr}}}); err == nil || errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("got %v, want that nobody answers", err)
	}
	if _, err := Examine(t.Context(), DoctorConfig{}); !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("got %v, want misconfigured", err)
	}
}

func TestTheDoctorOnARealBroker(t *testing.T) {
	c := servicestest.OwnKafka(t, services.KafkaConfig{Config: map[string]string{
		"transaction.max.timeout.ms":      "600000",
		"transactional.id.expiration.ms":  "60000",
		"offsets.retention.minutes":       "60",
		"authorizer.class.name":           "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found":  "true",
		"log.retention.check.interval.ms": "300000",
	}})
	a, err := NewAdmin(AdminConfig{Brokers: c.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	topic := func(name string, config map[string]string) {
		t.Helper()
		if err := a.CreateTopic(t.Context(), name, 2, config); err != nil {
			t.Fatal(err)
		}
	}
	topic("in", nil)
	topic("brief", map[string]string{"retention.ms": "1000", "retention.bytes": "1000000"})
	topic("short", map[string]string{"retention.ms": "300000", "min.insync.replicas": "2"})
	topic("denied", map[string]string{"retention.ms": "-1", "unclean.leader.election.enable": "true"})
	cfg := DoctorConfig{Sink: SinkConfig{Brokers: c.Addrs()}, From: []string{"in"}, To: []string{"brief", "short", "denied"}, Namespace: "ns"}

	t.Run("T2/a timeout that the brokers refuse is refused at once", func(t *testing.T) {
		cfg := cfg
		cfg.Sink.TransactionTimeout = 20 * time.Minute
		want(t, examined(t, cfg), Wrong, "broker 1", "transaction.max.timeout.ms", "600000")
	})
	found := examined(t, cfg)
	want(t, found, Fine, "the cluster", "transaction.version", "2")
	want(t, found, Note, "broker 1", "transaction.max.timeout.ms", "600000")
	want(t, found, Warning, "broker 1", "transactional.id.expiration.ms", "1m0s")
	want(t, found, Warning, "broker 1", "offsets.retention.minutes", "1h0m0s")
	want(t, found, Fine, "broker 1", "producer.id.expiration.ms", "")
	want(t, found, Warning, "topic brief", "replication factor", "1")
	want(t, found, Wrong, "topic brief", "retention.ms", "1000")
	want(t, found, Warning, "topic brief", "retention.bytes", "1000000")
	want(t, found, Warning, "topic short", "retention.ms", "300000")
	want(t, found, Wrong, "topic short", "min.insync.replicas", "2")
	want(t, found, Fine, "topic denied", "retention.ms", "-1")
	want(t, found, Warning, "topic denied", "unclean.leader.election.enable", "true")
	want(t, found, Fine, "the controller's clock", "difference to ours", "")
	want(t, found, Fine, "topic in", "right READ for Fetch", "allowed")
	want(t, found, Fine, "topic denied", "right WRITE for Produce", "allowed")
	want(t, found, Fine, "transactional ids ns.*", "right WRITE", "allowed")
	want(t, found, Fine, "groups unisink.ns.*", "right READ", "allowed")
	want(t, found, Fine, "the cluster", "right ALTER for WriteTxnMarkers", "allowed")

	// Where there is any rule, only rules count.
	rules := kadm.NewACLs().Allow("User:*").AllowHosts("*").Topics("in", "denied").TransactionalIDs("ns").Groups("unisink.ns.").
		ResourcePatternType(kadm.ACLPatternPrefixed).Operations(kadm.OpDescribe, kadm.OpDescribeConfigs)
	made, err := a.adm.CreateACLs(t.Context(), rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range made {
		if m.Err != nil {
			t.Fatal(m.Err)
		}
	}
	// Brokers learn of rules a moment later.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	denied := func(f Finding) bool { return f.Found == "denied" }
	for wait := slow(); ; {
		if found, err = Examine(ctx, cfg); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(found, denied) {
			break
		}
		if err := wait.wait(ctx); err != nil {
			t.Fatal("the rights were never taken away")
		}
	}
	found = examined(t, cfg)
	want(t, found, Wrong, "topic in", "right READ for Fetch", "denied")
	want(t, found, Wrong, "topic denied", "right WRITE for Produce", "denied")
	want(t, found, Wrong, "transactional ids ns.*", "right WRITE", "denied")
	want(t, found, Fine, "transactional ids ns.*", "right DESCRIBE", "allowed")
	want(t, found, Wrong, "groups unisink.ns.*", "right READ", "denied")
	want(t, found, Fine, "topic denied", "retention.ms", "-1")
	ids, err := a.adm.ListTransactions(t.Context(), nil, nil)
	if err != nil || len(ids) != 0 {
		t.Errorf("the doctor left transactional ids behind: %v, %v", ids, err)
	}
}
