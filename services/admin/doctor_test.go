package admin_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/admin"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/testenv/backend"
	"flightline/streams"
)

func doctor(t *testing.T, b *testenv.Server, fix bool) admin.Report {
	t.Helper()
	r, err := admin.Doctor(t.Context(), b.NC, admin.DoctorConfig{Fix: fix, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// found is the finding of a check, OK without one.
func found(r admin.Report, check string) admin.Finding {
	for _, f := range r.Findings {
		if f.Check == check {
			return f
		}
	}
	return admin.Finding{Check: check, State: admin.OK}
}

// beat lets an instance of the role beat until the test ends.
func beat(t *testing.T, reg *registry.Registry, role streams.Role) {
	t.Helper()
	testenv.Background(t, func(ctx context.Context) error {
		return reg.Instances.Announce(ctx, registry.Instance{ID: string(role), Role: string(role)})
	})
	testenv.Eventually(t, "it beats", func() bool {
		list, err := reg.Instances.List(t.Context())
		return err == nil && slices.ContainsFunc(list, func(i registry.Instance) bool { return i.Role == string(role) })
	})
}

func TestAWellInstallationHasNothingToDo(t *testing.T) {
	t.Parallel()
	s := backend.New(t)
	beat(t, s.Registry, streams.RoleAPI)
	beat(t, s.Registry, streams.RoleRecorder)
	r := doctor(t, s.Bus, false)
	for _, f := range r.Findings {
		if f.State != admin.OK && f.Check != "durability" {
			t.Errorf("got %+v, want ok", f)
		}
	}
	if f := found(r, "durability"); f.State != admin.Warn || !strings.Contains(f.Hint, "sync_interval") {
		t.Errorf("got %+v, want a warning that says how to look", f)
	}
	for _, test := range []struct {
		sync string
		want admin.State
	}{
		{"always", admin.OK},
		{"group", admin.OK},
		{"interval", admin.Warn},
	} {
		f := found(doctorOf(t, s.Bus.NC, admin.DoctorConfig{Sync: test.sync}), "durability")
		if f.State != test.want || !strings.Contains(f.Text, "--sync "+test.sync) {
			t.Errorf("--sync %s: got %+v, want %s", test.sync, f, test.want)
		}
	}
}

// What is missing or differs is found, and fixed on demand.
func TestDoctorFindsAndFixes(t *testing.T) {
	tests := map[string]struct {
		harm  func(js jetstream.JetStream) error
		check string
		state admin.State
		text  string
	}{
		"a stream is missing": {
			func(js jetstream.JetStream) error { return js.DeleteStream(t.Context(), streams.Undelivered) },
			"stream " + streams.Undelivered, admin.Fail, "missing",
		},
		"a bucket is missing": {
			func(js jetstream.JetStream) error { return js.DeleteKeyValue(t.Context(), streams.BucketTemplates) },
			"stream " + streams.Bucket(streams.BucketTemplates), admin.Fail, "missing",
		},
		"a queue is missing": {
			func(js jetstream.JetStream) error {
				return js.DeleteStream(t.Context(), streams.Jobs(backend.EndpointID))
			},
			"stream " + streams.Jobs(backend.EndpointID), admin.Fail, "missing or unreadable",
		},
		"a consumer is missing": {
			func(js jetstream.JetStream) error {
				return js.DeleteConsumer(t.Context(), streams.Jobs(backend.EndpointID), streams.Consumer(job.Normal))
			},
			"consumer normal of " + streams.Jobs(backend.EndpointID), admin.Fail, "missing",
		},
		"a setting differs": {
			func(js jetstream.JetStream) error {
				s, err := js.Stream(t.Context(), streams.Events)
				if err != nil {
					return err
				}
				c := s.CachedInfo().Config
				c.MaxAge = time.Hour
				_, err = js.UpdateStream(t.Context(), c)
				return err
			},
			"stream " + streams.Events, admin.Warn, "max age is 1h0m0s, want 168h0m0s",
		},
	}
	s := backend.New(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := test.harm(s.Bus.JS); err != nil {
				t.Fatal(err)
			}
			r := doctor(t, s.Bus, false)
			if f := found(r, test.check); f.State != test.state || !strings.Contains(f.Text, test.text) || f.Hint == "" || r.Failed() != (test.state == admin.Fail) {
				t.Errorf("got %+v, failed %v; want %s %q with a hint", f, r.Failed(), test.state, test.text)
			}
			lost := test.text == "missing" && strings.HasPrefix(test.check, "stream ")
			if f := found(doctor(t, s.Bus, true), test.check); lost != (f.State == admin.Warn && strings.Contains(f.Text, "was made again: ")) || !lost && f.State != admin.OK {
				t.Errorf("got %+v of --fix, want what was lost, and ok of the others", f)
			}
			if f := found(doctor(t, s.Bus, false), test.check); f.State != admin.OK {
				t.Errorf("got %+v after --fix, want ok", f)
			}
		})
	}
}

// Jobs that nobody takes in, and messages that no role asks for, are a warning.
func TestDoctorFindsRolesThatDoNotRun(t *testing.T) {
	t.Parallel()
	s := backend.New(t)
	if f := found(doctor(t, s.Bus, false), "instances"); f.State != admin.Warn || f.Hint == "" {
		t.Errorf("got %+v, want a warning with a hint", f)
	}
	beat(t, s.Registry, streams.RoleAPI)
	without := doctor(t, s.Bus, false)
	if f := found(without, "instances"); f.State != admin.OK || !strings.Contains(f.Text, "1 instances") {
		t.Errorf("got %+v, want the one that beats", f)
	}
	if f := found(without, "recorder"); f.State != admin.Warn || !strings.Contains(f.Hint, "start the role recorder") {
		t.Errorf("got %+v, want a warning that says which role to start", f)
	}
	beat(t, s.Registry, streams.RoleRecorder)
	if f := found(doctor(t, s.Bus, false), "recorder"); f.State != admin.OK {
		t.Errorf("got %+v while a recorder beats, want ok", f)
	}
	for subject, check := range map[string]string{
		streams.WebhookSubject(backend.EndpointID, "job", 1):                      "webhook of WEBHOOKS",
		streams.DueSubject(0, backend.EndpointID, "job", 1):                       "due of KV_records_0",
		streams.JobSubject(backend.EndpointID, job.Normal, job.ID("job-of-none")): "normal of JOBS_ep",
	} {
		if _, err := s.Bus.JS.Publish(t.Context(), subject, nil); err != nil {
			t.Fatal(err)
		}
		name, stream, _ := strings.Cut(check, " of ")
		testenv.Eventually(t, "the consumer counts the message", func() bool { // a moment behind
			c, err := s.Bus.JS.Consumer(t.Context(), stream, name)
			return err == nil && c.CachedInfo().NumPending == 1
		})
	}
	r := doctor(t, s.Bus, false)
	for check, hint := range map[string]string{"webhook of WEBHOOKS": "start the role webhook", "due of KV_records_0": "start the role api"} {
		if f := found(r, "consumer "+check); f.State != admin.Warn || f.Text != "1 messages wait and nobody asks for them" || f.Hint != hint {
			t.Errorf("got %+v, want a warning with %q", f, hint)
		}
	}
	if f := found(r, "consumer normal of JOBS_ep"); f.State != admin.OK {
		t.Errorf("got %+v, want nothing of a queue whose workers are away", f)
	}
}

func TestDoctorFindsAQueueWithoutEndpoint(t *testing.T) {
	t.Parallel()
	b := applied(t) // its endpoint is in no bucket
	if f := found(doctor(t, b, false), "queue "+streams.Jobs("ep")); f.State != admin.Warn || f.Hint == "" {
		t.Errorf("got %+v, want a warning with a hint", f)
	}
}

func TestDoctorTellsOfAnEndpointThatPausedItself(t *testing.T) {
	t.Parallel()
	b := applied(t)
	reg, err := registry.New(t.Context(), b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	for id, reason := range map[string]string{"spent": "its failure budget is used up", "asked": ""} {
		if _, err := reg.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: id, PausedUntil: time.Now().Add(time.Hour), PauseReason: reason}); err != nil {
			t.Fatal(err)
		}
	}
	report := doctor(t, b, false)
	if f := found(report, "endpoint spent"); f.State != admin.Warn || f.Text != "it has paused itself: its failure budget is used up" || !strings.Contains(f.Hint, "resume spent") {
		t.Errorf("got %+v, want a warning with the reason and how to resume it", f)
	}
	if f := found(report, "endpoint asked"); f.State != admin.OK {
		t.Errorf("got %+v of an endpoint that was asked to pause, want nothing", f)
	}
}

// While one value of the endpoints cannot be read, no queue is taken for one
// without endpoint, and none is fixed; all else is.
func TestDoctorLeavesQueuesAloneThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	s := backend.New(t)
	kv, err := s.Bus.JS.KeyValue(t.Context(), streams.BucketEndpoints)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "spoilt", "no JSON"); err != nil {
		t.Fatal(err)
	}
	for _, fix := range []bool{false, true} {
		if err := s.Bus.JS.DeleteStream(t.Context(), streams.Undelivered); err != nil {
			t.Fatal(err)
		}
		r := doctor(t, s.Bus, fix)
		for _, f := range r.Findings {
			if strings.HasPrefix(f.Check, "queue ") {
				t.Errorf("fix %v: got %+v, want nothing about queues", fix, f)
			}
		}
		if f := found(r, "endpoints"); f.State != admin.Fail || f.Hint == "" {
			t.Errorf("fix %v: got %+v, want a fail with a hint", fix, f)
		}
		if f := found(r, "fix"); fix && (f.State != admin.Fail || !strings.Contains(f.Text, "left as they are")) {
			t.Errorf("got %+v, want that queues were left", f)
		}
		if f := found(r, "stream "+streams.Undelivered); (f.State == admin.Fail) == fix {
			t.Errorf("fix %v: got %+v", fix, f)
		}
		if !fix {
			if err := streams.Apply(t.Context(), s.Bus.JS, streams.Config{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The doctor of an older program fixes nothing of a newer one's.
func TestDoctorKeepsItsHandsOffANewerSchema(t *testing.T) {
	t.Parallel()
	b := applied(t)
	s, err := b.JS.Stream(t.Context(), streams.Bucket(streams.BucketEndpoints))
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.Metadata = map[string]string{"flightline.schema": "99"}
	if _, err := b.JS.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := b.JS.DeleteStream(t.Context(), streams.Undelivered); err != nil {
		t.Fatal(err)
	}
	r := doctor(t, b, true)
	if f := found(r, "schema"); f.State != admin.Fail || !r.Failed() {
		t.Errorf("got %+v, want a fail", f)
	}
	if _, err := b.JS.Stream(t.Context(), streams.Undelivered); err == nil {
		t.Error("it made a stream")
	}
}

func TestDoctorOnAnEmptyServer(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	for _, f := range doctor(t, b, false).Findings {
		missing := strings.HasPrefix(f.Check, "stream ") && f.State == admin.Fail && f.Text == "missing" && f.Hint != ""
		expected := f.Check == "schema" || f.Check == "clock" || f.Check == "durability"
		if f.State == admin.Fail && !missing || f.State == admin.Warn && (!expected || f.Hint == "") || strings.Contains(f.Text, "<nil>") {
			t.Errorf("got %+v, want only that all is missing", f)
		}
	}
	r := doctor(t, b, true)
	for _, f := range r.Findings {
		if f.State != admin.OK && f.Check != "durability" && f.Check != "schema" {
			t.Errorf("got %+v after --fix, want ok", f)
		}
	}
}
