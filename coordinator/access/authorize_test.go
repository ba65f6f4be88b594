package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	_ "google.golang.org/grpc/reflection" // whose methods have rules
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// guarded asks for certificates, in a group whose one node is n1.
func guarded() *Guard {
	return New(Config{Certificates: true, Nodes: func() []string { return []string{"n1"} }})
}

// certified is a certificate of that name with roles.
func certified(name string, roles ...string) *x509.Certificate {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}}
	for _, r := range roles {
		c.URIs = append(c.URIs, &url.URL{Scheme: "unisink", Opaque: r})
	}
	return c
}

// by is the context of a call over a connection with that certificate; nil: none.
func by(c *x509.Certificate, headers ...string) context.Context {
	p := &peer.Peer{AuthInfo: credentials.TLSInfo{}}
	if c != nil {
		p.AuthInfo = credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c}}}}
	}
	return metadata.NewIncomingContext(peer.NewContext(context.Background(), p), metadata.Pairs(headers...))
}

// enter makes a unary call through the interceptor, and answers with the message that came through.
func enter(ctx context.Context, g *Guard, method string, req any) (came any, err error) {
	_, err = g.Unary(ctx, req, &grpc.UnaryServerInfo{FullMethod: method}, func(_ context.Context, req any) (any, error) {
		came = req
		return nil, nil
	})
	return came, err
}

func TestEveryRuleIsOfAMethodAndTheRestIsDenied(t *testing.T) {
	g := guarded()
	for name := range rules {
		_, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(name[1:], "/", ".")))
		if err != nil {
			t.Errorf("there is a rule for %s, and no such method: %v", name, err)
		}
	}
	if _, err := enter(by(certified("root", "admin")), g, "/unisink.v1.Cluster/Unheard", nil); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a method without a rule: %v", err)
	}
}

// inputs calls f with an empty message for each method that has a rule for members.
func inputs(t *testing.T, f func(method string, m proto.Message)) {
	t.Helper()
	for method, r := range rules {
		if !r.member {
			continue
		}
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(method[1:], "/", ".")))
		if err != nil {
			t.Fatal(err)
		}
		mt, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		f(method, mt.New().Interface())
	}
}

// fill sets every text in a message, and in those within it, to s.
func fill(m protoreflect.Message, s string) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		switch {
		case f.Cardinality() == protoreflect.Repeated:
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(s))
		case f.Message() != nil:
			fill(m.Mutable(f).Message(), s)
		}
	}
}

func TestAMemberActsInItsOwnPipelineAlone(t *testing.T) {
	g := guarded()
	seen := 0
	inputs(t, func(method string, m proto.Message) {
		seen++
		fill(m.ProtoReflect(), "orders")
		for name, c := range map[string]struct {
			roles []string
			may   bool
		}{
			"its own":               {[]string{"member:orders"}, true},
			"two":                   {[]string{"member:bills", "member:orders"}, true},
			"every":                 {[]string{"member:*"}, true},
			"another's":             {[]string{"member:bills"}, false},
			"one that begins alike": {[]string{"member:order"}, false},
			"no":                    {nil, false},
			"a role by hand":        {[]string{"client"}, false},
		} {
			_, err := enter(by(certified("worker", c.roles...)), g, method, m)
			if (err == nil) != c.may {
				t.Errorf("%s by a member of %s pipeline: %v", method, name, err)
			}
		}
	})
	if seen < 12 {
		t.Errorf("only %d methods were tried", seen)
	}
	inputs(t, func(method string, m proto.Message) { // a message that names no pipeline is nobody's
		if _, err := enter(by(certified("worker", "member:orders")), g, method, m); err == nil {
			t.Errorf("%s without a pipeline went through", method)
		}
	})
}

func TestEachRoleDoesWhatItIsFor(t *testing.T) {
	g := guarded()
	abort := func(txn string) *unisinkv1.AbortRequest { return &unisinkv1.AbortRequest{Txn: txn} }
	everyone := []string{"viewer", "member:orders", "client", "resolver", "operator", "admin"}
	for _, c := range []struct {
		method string
		req    any
		may    []string
	}{
		{unisinkv1.Cluster_Status_FullMethodName, &unisinkv1.StatusRequest{}, everyone},
		{unisinkv1.Pipelines_ListPipelines_FullMethodName, &unisinkv1.ListPipelinesRequest{}, []string{"viewer", "resolver", "operator", "admin"}},
		{unisinkv1.Pipelines_SetDesired_FullMethodName, &unisinkv1.SetDesiredRequest{Name: "orders"}, []string{"operator", "admin"}},
		{unisinkv1.Pipelines_Rewind_FullMethodName, &unisinkv1.RewindRequest{}, []string{"operator", "admin"}},
		{unisinkv1.Session_Vote_FullMethodName, &unisinkv1.VoteRequest{Scope: &unisinkv1.Scope{Pipeline: "orders"}}, []string{"member:orders"}},
		{unisinkv1.Transactions_Commit_FullMethodName, &unisinkv1.CommitRequest{}, []string{"client", "operator", "admin"}},
		{unisinkv1.Transactions_Abort_FullMethodName, abort("0192c5a0-0000-7000-8000-000000000000"), []string{"client", "operator", "admin"}},
		{unisinkv1.Transactions_Abort_FullMethodName, abort("orders/0@7.12"), []string{"operator", "admin"}},
		{unisinkv1.Transactions_Outcome_FullMethodName, &unisinkv1.OutcomeRequest{}, []string{"client", "resolver", "operator", "admin"}},
		{unisinkv1.Resolution_Judge_FullMethodName, &unisinkv1.JudgeRequest{}, []string{"resolver", "admin"}},
		{unisinkv1.Resolution_Force_FullMethodName, &unisinkv1.ForceRequest{}, []string{"operator", "admin"}},
		{unisinkv1.Cluster_AddNode_FullMethodName, &unisinkv1.AddNodeRequest{}, []string{"admin"}},
		{unisinkv1.Cluster_Backup_FullMethodName, &unisinkv1.BackupRequest{}, []string{"admin"}},
		{"/grpc.health.v1.Health/Check", nil, append([]string{""}, everyone...)},
	} {
		for _, role := range append([]string{""}, everyone...) {
			cert := certified("somebody", role)
			if role == "" {
				cert = nil
			}
			_, err := enter(by(cert), g, c.method, c.req)
			if may := slices.Contains(c.may, role); may != (err == nil) {
				t.Errorf("%s by %q: %v", c.method, role, err)
			}
			if reason, _ := grpcerr.Reason(err); err != nil && (status.Code(err) != codes.PermissionDenied || reason != grpcerr.NotAllowed) {
				t.Errorf("%s by %q is refused as %v (%s)", c.method, role, status.Code(err), reason)
			}
		}
	}
}

func TestARefusalSaysWhoLacksWhat(t *testing.T) {
	g := guarded()
	for want, c := range map[string]struct {
		cert   *x509.Certificate
		method string
		req    any
	}{
		"alice may not call Pipelines.SetDesired, which takes the role operator, and has viewer": {
			certified("alice", "viewer"), unisinkv1.Pipelines_SetDesired_FullMethodName, &unisinkv1.SetDesiredRequest{},
		},
		"worker may not call Session.Renew of pipeline orders, which takes the role member:orders, and has member:bills": {
			certified("worker", "member:bills"), unisinkv1.Session_Renew_FullMethodName, &unisinkv1.RenewRequest{Scope: &unisinkv1.Scope{Pipeline: "orders"}},
		},
		"worker may not call Cluster.Status, which takes any role, and has no role": {
			certified("worker"), unisinkv1.Cluster_Status_FullMethodName, &unisinkv1.StatusRequest{},
		},
		"a caller without a certificate may not call Pipelines.GetPipeline of pipeline orders, which takes the role viewer or member:orders; show a certificate (--cert and --key)": {
			nil, unisinkv1.Pipelines_GetPipeline_FullMethodName, &unisinkv1.GetPipelineRequest{Name: "orders"},
		},
	} {
		if _, err := enter(by(c.cert), g, c.method, c.req); status.Convert(err).Message() != want {
			t.Errorf("said:\n%s\nwant:\n%s", status.Convert(err).Message(), want)
		}
	}
}

// What a node hands on is its first caller's, and only a node hands on.
func TestAForwardedCallIsItsFirstCallers(t *testing.T) {
	g := guarded()
	as := func(name string, roles ...string) []string {
		h := []string{hopHeader, "n1", nameHeader, name}
		for _, r := range roles {
			h = append(h, rolesHeader, r)
		}
		return h
	}
	stop := &unisinkv1.SetDesiredRequest{Meta: &unisinkv1.Meta{Actor: "claimed"}}
	for name, c := range map[string]struct {
		cert    *x509.Certificate
		headers []string
		actor   string // "": refused
	}{
		"an operator's, by a node":           {certified("n1"), as("olga", "operator"), "olga"},
		"a viewer's, by a node":              {certified("n1"), as("vera", "viewer"), ""},
		"nobody's, by a node":                {certified("n1"), []string{hopHeader, "n1"}, ""},
		"a node's own":                       {certified("n1"), nil, ""},
		"an operator's, as a viewer says":    {certified("vera", "viewer"), as("olga", "operator"), ""},
		"a viewer's, as an operator says":    {certified("olga", "operator"), as("vera", "viewer"), "olga"},
		"a node's that left":                 {certified("n7"), as("olga", "operator"), ""},
		"an operator's, without certificate": {nil, as("olga", "operator"), ""},
	} {
		came, err := enter(by(c.cert, c.headers...), g, unisinkv1.Pipelines_SetDesired_FullMethodName, proto.Clone(stop))
		switch {
		case (err == nil) != (c.actor != ""):
			t.Errorf("%s: %v", name, err)
		case err == nil && came.(*unisinkv1.SetDesiredRequest).GetMeta().GetActor() != c.actor:
			t.Errorf("%s is written down as %q", name, came.(*unisinkv1.SetDesiredRequest).GetMeta().GetActor())
		}
	}
	for method, may := range map[string]bool{
		unisinkv1.Resolution_Judge_FullMethodName: true, unisinkv1.Resolution_Force_FullMethodName: false, unisinkv1.Cluster_AddNode_FullMethodName: false,
	} {
		if _, err := enter(by(certified("n1")), g, method, nil); (err == nil) != may {
			t.Errorf("%s by a node on its own: %v", method, err)
		}
	}
	// What is handed on is whole: the next node judges as this one did.
	ctx := g.HandOn(by(certified("olga", "operator", "member:orders")), "n1")
	md, _ := metadata.FromOutgoingContext(ctx)
	got := g.identify(metadata.NewIncomingContext(by(certified("n1")), md))
	if got.name != "olga" || fmt.Sprint(grantTexts(got.grants)) != "[member:orders operator]" {
		t.Errorf("handed on as %q with %v", got.name, got.grants)
	}
}

func TestTheLogSaysWhoAskedAndNotWhatTheyClaim(t *testing.T) {
	g := guarded()
	meta := func() *unisinkv1.Meta { return &unisinkv1.Meta{RequestId: "r", Actor: "claimed"} }
	for _, c := range []struct {
		method string
		req    interface{ proto.Message }
		actor  func(any) *unisinkv1.Meta
	}{
		{unisinkv1.Pipelines_Pin_FullMethodName, &unisinkv1.PinRequest{Meta: meta()}, func(m any) *unisinkv1.Meta { return m.(*unisinkv1.PinRequest).GetMeta() }},
		{unisinkv1.Pipelines_Pin_FullMethodName, &unisinkv1.PinRequest{}, func(m any) *unisinkv1.Meta { return m.(*unisinkv1.PinRequest).GetMeta() }},
		{
			unisinkv1.Session_Decide_FullMethodName,
			&unisinkv1.DecideRequest{Vote: &unisinkv1.VoteRequest{Meta: meta(), Scope: &unisinkv1.Scope{Pipeline: "orders"}}},
			func(m any) *unisinkv1.Meta { return m.(*unisinkv1.DecideRequest).GetVote().GetMeta() },
		},
	} {
		came, err := enter(by(certified("olga", "operator", "member:orders")), g, c.method, c.req)
		if err != nil || c.actor(came).GetActor() != "olga" {
			t.Errorf("%s: %v, %v", c.method, came, err)
		}
	}
	if got := actorText(strings.Repeat("ä", 200)); len(got) > ledger.MaxInstance || len(got) < ledger.MaxInstance-1 || strings.Trim(got, "ä") != "" {
		t.Errorf("a long name becomes %q", got)
	}
	open := New(Config{Nodes: g.c.Nodes}) // without certificates nobody is known
	came, err := enter(by(nil), open, unisinkv1.Pipelines_Pin_FullMethodName, &unisinkv1.PinRequest{Meta: meta()})
	if err != nil || came.(*unisinkv1.PinRequest).GetMeta().GetActor() != "claimed" {
		t.Errorf("without certificates: %v, %v", came, err)
	}
}

func TestACertificateThatDoesNotCountAnyMoreEndsItsCalls(t *testing.T) {
	g := guarded()
	var distrust error
	g.c.Trusts = func([][]*x509.Certificate, time.Time) error { return distrust }
	ask := func() error {
		_, err := enter(by(certified("olga", "operator")), g, unisinkv1.Pipelines_ListPipelines_FullMethodName, &unisinkv1.ListPipelinesRequest{})
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	distrust = errors.New("its authority is not trusted any more")
	if err := ask(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "olga may not call Pipelines.ListPipelines any more: its authority") {
		t.Errorf("said: %v", err)
	}
}

// stream is a server's stream that has one message to receive.
type stream struct {
	grpc.ServerStream
	ctx context.Context
	msg proto.Message
}

func (s *stream) Context() context.Context { return s.ctx }
func (s *stream) SendMsg(any) error        { return nil }
func (s *stream) RecvMsg(m any) error {
	proto.Merge(m.(proto.Message), s.msg)
	return nil
}

func TestAStreamIsLookedAtWithItsMessage(t *testing.T) {
	g := guarded()
	attach := func(cert *x509.Certificate, pipeline string) (*unisinkv1.AttachRequest, error) {
		came := &unisinkv1.AttachRequest{}
		ss := &stream{ctx: by(cert), msg: &unisinkv1.AttachRequest{
			Meta: &unisinkv1.Meta{Actor: "claimed"}, Scope: &unisinkv1.Scope{Pipeline: pipeline},
		}}
		return came, g.Stream(nil, ss, &grpc.StreamServerInfo{FullMethod: unisinkv1.Session_Attach_FullMethodName}, func(_ any, ss grpc.ServerStream) error {
			if err := ss.RecvMsg(came); err != nil {
				return err
			}
			return ss.SendMsg(&unisinkv1.Order{})
		})
	}
	if came, err := attach(certified("worker", "member:orders"), "orders"); err != nil || came.GetMeta().GetActor() != "worker" {
		t.Errorf("its own pipeline: %v, %v", came, err)
	}
	for name, c := range map[string]*x509.Certificate{"none": nil, "another's": certified("worker", "member:bills"), "an operator": certified("olga", "operator")} {
		if _, err := attach(c, "orders"); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRolesOfAFileReplaceThoseOfCertificates(t *testing.T) {
	g := guarded()
	r, err := ParseRoles([]byte("# people\nolga operator\n\"CN with spaces\"\tmember:orders member:bills\nspiffe://group/ns/shop client\nnobody\n"))
	if err != nil {
		t.Fatal(err)
	}
	g.c.Roles = func() *Roles { return r }
	spiffe := &x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "group", Path: "/ns/shop"}, {Scheme: "unisink", Opaque: "admin"}}}
	for want, c := range map[string]*x509.Certificate{
		"[operator]":                   certified("olga", "admin"),
		"[]":                           certified("alice", "admin"),
		"[member:bills member:orders]": certified("CN with spaces"),
		"[client]":                     spiffe,
	} {
		if got := fmt.Sprint(grantTexts(g.identify(by(c)).grants)); got != want {
			t.Errorf("%s has %s, want %s", certName(c), got, want)
		}
	}
	for text, want := range map[string]string{
		"":                        "they name nobody",
		"# olga operator\n":       "they name nobody",
		"a viewer\na operator\n":  `line 2: "a" stands there twice`,
		"a owner\nb member\n":     `line 1: there is no role "owner"`,
		"b member\n":              `the role "member" needs a pipeline`,
		"b admin:orders\n":        `the role "admin" is for the whole group`,
		"b member:or/ders\n":      `pipeline name "or/ders"`,
		"n1 node\n":               `there is no role "node"`,
		"\"no end operator\n":     "the name has no end",
		"c " + string(rune(0)):    "there is no role",
		strings.Repeat("x", 1e5):  "token too long",
		"c viewer\nd member:a.b":  `line 2: the role "member:a.b"`,
		"c viewer,operator\n":     `there is no role "viewer,operator"`,
		"e member:*,client\n":     `the role "member:*,client"`,
		"f \"viewer\"\n":          "there is no role",
		"g viewer # not a note\n": `there is no role "#"`,
	} {
		if _, err := ParseRoles([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

func FuzzParseRoles(f *testing.F) {
	f.Add([]byte("olga operator\n\"a b\" member:orders client\n# x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseRoles(text)
		if err != nil {
			return
		}
		for name := range r.byName { // what is read can be written and read again
			for _, g := range r.Of(name) {
				if _, err := parseGrant(g); err != nil {
					t.Errorf("%q has %q: %v", name, g, err)
				}
			}
		}
	})
}

func TestANodeWithoutAGroupAnswersWhoeverTheAuthorityHasSigned(t *testing.T) {
	g := guarded()
	g.c.Nodes = func() []string { return nil }
	ask := func(c *x509.Certificate, method string, req any) error {
		_, err := enter(by(c), g, method, req)
		return err
	}
	if err := ask(certified("n2"), unisinkv1.Cluster_Status_FullMethodName, &unisinkv1.StatusRequest{}); err != nil {
		t.Errorf("the status: %v", err)
	}
	for name, err := range map[string]error{
		"status without a certificate": ask(nil, unisinkv1.Cluster_Status_FullMethodName, &unisinkv1.StatusRequest{}),
		"bootstrap without a role":     ask(certified("n2"), unisinkv1.Cluster_Bootstrap_FullMethodName, &unisinkv1.BootstrapRequest{}),
	} {
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Who calls is judged by the connection, and by a header only where a node has handed the call on.
func TestACallerIsKnownByItsConnection(t *testing.T) {
	nodes := func() []string { return []string{"n2"} }
	plain, mutual := New(Config{Nodes: nodes}), New(Config{Nodes: nodes, Certificates: true})
	addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 4711}
	named := func(name string) credentials.AuthInfo {
		leaf := &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}}
		return credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}}
	}
	handedOn := metadata.Pairs(hopHeader, "n2", callerHeader, "10.0.0.9")
	for name, c := range map[string]struct {
		g    *Guard
		auth credentials.AuthInfo
		md   metadata.MD
		want string
	}{
		"plain text":                       {plain, nil, nil, "10.0.0.7"},
		"plain text, handed on":            {plain, nil, handedOn, "10.0.0.9"},
		"a header of the caller's own":     {plain, nil, metadata.Pairs(callerHeader, "10.0.0.9"), "10.0.0.7"},
		"a certificate":                    {mutual, named("shop"), nil, "certificate CN=shop"},
		"a certificate, handed on":         {mutual, named("n2"), handedOn, "10.0.0.9"},
		"a client that passes as a node":   {mutual, named("shop"), handedOn, "certificate CN=shop"},
		"no certificate where one is owed": {mutual, nil, handedOn, "10.0.0.7"},
	} {
		ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: addr, AuthInfo: c.auth})
		if got := c.g.Caller(metadata.NewIncomingContext(ctx, c.md)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Certificates without a subject are told apart by what else they name, or by their keys: their holders do not share what
// one caller may ask.
func TestCertificatesWithoutASubjectAreSeveralCallers(t *testing.T) {
	uri := func(text string) []*url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return []*url.URL{u}
	}
	seen := map[string]bool{}
	g := New(Config{Nodes: func() []string { return nil }, Certificates: true})
	for _, leaf := range []*x509.Certificate{
		{URIs: uri("spiffe://a/shop")},
		{URIs: uri("spiffe://a/till")},
		{DNSNames: []string{"shop"}},
		{EmailAddresses: []string{"s@shop"}},
		{RawSubjectPublicKeyInfo: []byte("k1")},
		{RawSubjectPublicKeyInfo: []byte("k2"), URIs: uri("unisink:operator")},
		{RawSubjectPublicKeyInfo: []byte("k3"), URIs: uri("unisink:operator")},
		{Subject: pkix.Name{CommonName: "shop"}},
		{Subject: pkix.Name{CommonName: "shop"}, URIs: uri("spiffe://a/shop")},
	} {
		auth := credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}}
		who := g.Caller(peer.NewContext(t.Context(), &peer.Peer{AuthInfo: auth}))
		if seen[who] {
			t.Errorf("%q is two callers", who)
		}
		seen[who] = true
	}
}
