package admin_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/admin"
	"flightline/shared/testenv"
	"flightline/streams"
)

func doctorOf(t *testing.T, nc *nats.Conn, cfg admin.DoctorConfig) admin.Report {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	r, err := admin.Doctor(t.Context(), nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// --fix without --replicas takes no copies away, says how to go on, and does
// nothing else.
func TestDoctorTakesNoCopiesAway(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	c := testenv.NewCluster(t)
	events := jetstream.StreamConfig{Name: streams.Events, Subjects: []string{"events.>"}, Replicas: 3}
	if _, err := c.JS.CreateStream(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	r := doctorOf(t, c.NC, admin.DoctorConfig{Fix: true})
	if f := found(r, "fix"); f.State != admin.Fail || !strings.Contains(f.Text, "give --replicas 3, or take copies away by hand") {
		t.Errorf("got %+v, want a fail that says what to do", f)
	}
	if f := found(r, "durability"); f.State != admin.OK || f.Hint == "" {
		t.Errorf("got %+v, want what there is: three copies", f)
	}
	s, err := c.JS.Stream(t.Context(), streams.Events)
	if err != nil || s.CachedInfo().Config.Replicas != 3 {
		t.Errorf("got %+v, %v, want still three copies", s.CachedInfo().Config, err)
	}
	if info, err := c.JS.AccountInfo(t.Context()); err != nil || info.Streams != 1 {
		t.Errorf("got %+v, %v, want no other stream", info, err)
	}
}

// A stream whose server is away, or that elects its leader, counts as lost only if the cluster does not know it.
func TestAStreamForWhichNoServerAnswersIsNotMissing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	c := testenv.NewCluster(t)
	if _, err := c.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: streams.BucketEndpoints, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: streams.Events, Subjects: []string{"events.>"}}); err != nil {
		t.Fatal(err)
	}
	stopped := c.StreamLeader(streams.Events)
	c.StopNode(stopped)
	copies := "copies on " + c.NodeName(stopped)
	var r admin.Report
	testenv.Eventually(t, "the doctor looks at the streams and the copies", func() bool {
		r = doctorOf(t, c.NC, admin.DoctorConfig{})
		return found(r, "stream "+streams.Webhooks).State == admin.Fail && found(r, copies).State == admin.Fail
	})
	if f := found(r, copies); !strings.HasPrefix(f.Text, "offline, last heard of ") || !strings.HasSuffix(f.Text, " ago: "+streams.Bucket(streams.BucketEndpoints)) {
		t.Errorf("got %+v, want the stream whose copy is away", f)
	}
	if f := found(r, "stream "+streams.Webhooks); f.Text != "missing" {
		t.Errorf("got %+v, want that it is missing", f)
	}
	if f := found(r, "stream "+streams.Events); f.State != admin.Fail || f.Text != "no server answers for it" || strings.Contains(f.Hint, "--fix") {
		t.Errorf("got %+v, want that it is away, and nothing lost", f)
	}
}

// Durability is what there is, not what was asked for.
func TestDurabilityIsThatOfTheStreams(t *testing.T) {
	t.Parallel()
	empty := testenv.NewServer(t)
	other := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}} // of somebody else
	if _, err := empty.JS.CreateStream(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		nc    *nats.Conn
		state admin.State
		text  string
	}{
		"no stream yet":           {empty.NC, admin.OK, "two of three"},
		"one copy, three are due": {applied(t).NC, admin.Warn, "copies of each message: 1 at least"},
	} {
		f := found(doctorOf(t, test.nc, admin.DoctorConfig{Streams: streams.Config{Replicas: 3}}), "durability")
		if f.State != test.state || !strings.Contains(f.Text, test.text) {
			t.Errorf("%s: got %+v, want %s and %q", name, f, test.state, test.text)
		}
	}
}
